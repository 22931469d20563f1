"""
Calls whose answers were lost: the connection broke, or the caller was cancelled, and the server may have done them.

Owns what this process remembers of such calls until it has asked again. A call has a number. The server answers a
number that comes again as it did the first time: what it settled counts as settled, and what it claimed is returned.
Knows no connection and no SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.stores.contract import seq_of
from redrive.stores.postgres.server.transaction import new_call

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from redrive.core.moves import Move
    from redrive.stores.contract import Claim

_REMEMBERED = 10_000  # settlements

Settlement = tuple["Claim", "Move"]


class UnansweredCalls:
    """For each worker the calls that may have claimed letters; its next exchanges ask for them again."""

    def __init__(self) -> None:
        self._calls: dict[str, list[int]] = {}

    def __contains__(self, worker: str) -> bool:
        return worker in self._calls

    def next(self, worker: str) -> tuple[int, bool]:
        """Return the number of the worker's next call, and whether it was sent before."""
        calls = self._calls.pop(worker, [])
        if not calls:
            return new_call(), False
        self.note(worker, *calls[1:])
        return calls[0], True

    def note(self, worker: str, *calls: int) -> None:
        """Remember calls that the server may have done."""
        kept = self._calls.get(worker, [])
        if fresh := [call for call in calls if call not in kept]:
            self._calls[worker] = kept + fresh


class UnansweredSettlements:
    """
    For each settlement the calls that may have carried it out.

    A settlement is a claim and what was to become of it: a worker may have given a claim back and, in another call, a
    sweep may have taken it back. The answer to one of the two calls says nothing about the other.
    """

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int, str, str], list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def note(self, settlements: Sequence[Settlement], call: int) -> None:
        """Remember that *call* was to carry out *settlements*."""
        for claim, move in settlements:
            calls = self._calls.setdefault(_name_of(claim, move), [])
            if call not in calls:
                calls.append(call)
        while len(self._calls) > _REMEMBERED:
            del self._calls[next(iter(self._calls))]

    def of(self, settlements: Sequence[Settlement], refused: Collection[int]) -> list[tuple[int, int]]:
        """Return the seq and the call of every settlement that is *refused* now and was sent before."""
        asked = {_name_of(claim, move) for claim, move in settlements if seq_of(claim) in refused}
        return [(name[0], call) for name in asked for call in self._calls.get(name, ())]

    def forget(self, settlements: Sequence[Settlement]) -> None:
        """Remove these, which were answered."""
        for claim, move in settlements:
            self._calls.pop(_name_of(claim, move), None)


def _name_of(claim: Claim, move: Move) -> tuple[int, int, str, str]:
    return (seq_of(claim), claim.letter.token, move.to, move.why)
