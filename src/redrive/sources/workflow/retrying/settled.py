"""
A retry that was settled, as a value.

Owns what the numbers and the caller of `retry_task` must know of it. Knows no store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redrive.core.decide import Failed

if TYPE_CHECKING:
    from typing import Any

    from redrive.core.decide import Outcome
    from redrive.core.moves import Move
    from redrive.stores.contract import Claim


class SettledRetry(NamedTuple):
    """A retry that was settled."""

    claim: Claim
    move: Move
    outcome: Outcome
    result: Any
    ran: bool = True  # False: it failed with a task that it waits for, or with its process
    by_hand: bool = False  # a person asked for it
    was_dead: bool = False  # before this retry, too
    accepted: bool = True  # False: the claim was no longer held, so the store kept nothing of it


def unrun(claim: Claim, move: Move) -> SettledRetry:
    """Return what became of a task that failed without a run."""
    assert move.failure is not None  # noqa: S101 - that is how it failed
    return SettledRetry(claim, move, Failed(move.failure), None, ran=False)
