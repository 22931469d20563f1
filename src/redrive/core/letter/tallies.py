"""
What a letter is counted by.

Owns the traits that every store keeps a count for, so that statistics never scan letters.
Knows no store: each keeps its counts in its own way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redrive.core.letter.letter import Status

if TYPE_CHECKING:
    from redrive.core.letter.letter import Letter


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
    """
    Return what *letter* is counted by.

    Dead letters are told apart by their error. A letter that waits for its retry is counted by the category of its
    last failure and the policy that was applied; a fresh one has neither.
    """
    queue, kind, status = letter.queue, letter.kind, letter.status
    if status is Status.FAILED:
        policy, error_type = letter.applied_policy or "", letter.error_type or ""
        return Trait(queue, kind, "failed", letter.category or "", policy, error_type, letter.fingerprint or "")
    if status is Status.PENDING:
        return Trait(queue, kind, "pending", letter.category or "", letter.applied_policy or "")
    return Trait(queue, kind, str(status))
