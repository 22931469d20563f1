"""
What makes two letters the same letter.

Owns the names under which a store finds a duplicate: the id, the idempotency key within queue and kind and, for a key
that is unique in its queue, the key within the queue. Knows no store: PostgreSQL and SQLite keep the same rule as
unique indexes, and the contract tests compare them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.core.letter.letter import Draft, Letter

Name = tuple[str, ...]  # of a length of its own for each rule, so that the names of two rules never meet


def names_of(letter: Draft | Letter) -> list[Name]:
    """Return every name of *letter*; a second letter that has one of them is a duplicate."""
    return [(letter.id,), *keys_of(letter)]


def keys_of(letter: Draft | Letter) -> list[Name]:
    """Return the names that come from its idempotency key."""
    key = letter.idempotency_key
    if key is None:
        return []
    narrow = (letter.queue, letter.kind, key)
    return [narrow] if letter.unique_in == "kind" else [narrow, (letter.queue, key)]
