"""
What a letter is counted by.

Owns the traits that every store keeps a count for, so that statistics never scan letters.
Knows no store: each keeps its counts in its own way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redrive.core.letter import Status

if TYPE_CHECKING:
    from redrive.core.letter import Letter


class Trait(NamedTuple):
    """What letters are counted by."""

    queue: str
    kind: str
    status: str
    category: str = ""
    policy: str = ""
    error_type: str = ""
    fingerprint: str = ""


def trait_of(letter: Letter) -> Trait:
    """Return what *letter* is counted by; only dead letters are told apart by their error."""
    if letter.status is not Status.FAILED:
        return Trait(letter.queue, letter.kind, str(letter.status))
    return Trait(
        letter.queue,
        letter.kind,
        "failed",
        letter.category or "",
        letter.applied_policy or "",
        letter.error_type or "",
        letter.fingerprint or "",
    )
