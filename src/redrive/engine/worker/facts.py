"""
From settled letters to facts.

Owns which fact a move becomes, and what a worker needs of the object that announces it. The processor calls it after
the store has accepted the move. Successes are counted per batch, every other move is a fact of its own. Knows no
exporter.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from redrive.core.facts import ClaimLost, Delivered, Died, Enqueued, GivenBack, Rescued, Retried
from redrive.core.letter import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from redrive.core.facts import Fact
    from redrive.core.letter import Draft
    from redrive.core.moves import Move
    from redrive.engine.handler import Handler
    from redrive.engine.worker.deciding import Settlement
    from redrive.stores.contract import Claim, Receipt

ERROR_SHOWN = 1_000  # characters of an error's text in a fact; the store keeps more


class Announce(Protocol):
    """Passes facts on, after the store has accepted what they say."""

    @property
    def wants_routine(self) -> bool:
        """Whether to make the facts about every letter at all."""

    def __call__(self, fact: Fact, /) -> None:
        """Pass *fact* on; this never raises."""


def facts_of(settlements: Sequence[Settlement], accepted: Sequence[bool], *, routine: bool = True) -> Iterator[Fact]:
    """Yield the facts about these settlements; those about delivered letters only if *routine*."""
    if routine:
        yield from _delivered(settlements, accepted)
    for (claim, move), yes in zip(settlements, accepted, strict=True):
        if not yes:
            letter = claim.letter
            yield ClaimLost(id=letter.id, queue=letter.queue, kind=letter.kind, worker=letter.worker or "")
        elif move.to is not Status.DELIVERED:
            yield _fact(claim, move)


def completed(fact: Fact, handlers: Mapping[str, Handler], seconds: dict[str, float]) -> Fact:
    """Return *fact* with what only the process knows: the *seconds* spent in a kind's handler, and its name."""
    if isinstance(fact, Delivered):
        return msgspec.structs.replace(fact, seconds=seconds.pop(fact.kind, 0.0))
    if isinstance(fact, Died) and not fact.handler and fact.kind in handlers:
        return msgspec.structs.replace(fact, handler=handlers[fact.kind].name)
    return fact


def accepted(drafts: Sequence[Draft], receipts: Sequence[Receipt]) -> Iterator[Fact]:
    """Yield the facts about letters that a store has accepted, by queue and kind."""
    kinds: dict[tuple[str, str], list[int]] = {}
    for draft, receipt in zip(drafts, receipts, strict=True):
        counts = kinds.setdefault((draft.queue, draft.kind), [0, 0])
        counts[0] += 1
        counts[1] += receipt.duplicate
    for (queue, kind), (count, duplicates) in kinds.items():
        yield Enqueued(queue=queue, kind=kind, count=count, duplicates=duplicates)


def _delivered(settlements: Sequence[Settlement], accepted: Sequence[bool]) -> Iterator[Fact]:
    answered = zip(settlements, accepted, strict=True)
    claims = (claim for (claim, move), yes in answered if yes and move.to is Status.DELIVERED)
    kinds = Counter((claim.letter.queue, claim.letter.kind) for claim in claims)
    for (queue, kind), count in kinds.items():
        yield Delivered(queue=queue, kind=kind, count=count)


def _fact(claim: Claim, move: Move) -> Fact:
    letter, failure = claim.letter, move.failure
    if move.loss and move.to is Status.PENDING:
        return Rescued(
            id=letter.id, queue=letter.queue, kind=letter.kind, losses=letter.losses + 1, why=move.why,
            worker=letter.worker or "",
        )  # fmt: skip
    if failure is None:
        return GivenBack(queue=letter.queue, kind=letter.kind, why=move.why, delay=move.delay)
    known: dict[str, Any] = {
        "id": letter.id, "queue": letter.queue, "kind": letter.kind, "attempts": letter.attempts,
        "error_type": failure.error_type, "category": failure.category, "rule": failure.rule,
        "fingerprint": failure.fingerprint, "why": move.why,
    }  # fmt: skip
    if move.to is Status.FAILED:
        target, text = letter.handler or "", failure.message[:ERROR_SHOWN]
        return Died(
            **known, handler=target, target=target, origin=letter.origin or "", last_error=text, place=failure.place,
            traceback=failure.traceback,
        )  # fmt: skip
    return Retried(**known, delay=move.delay)
