"""
What keeps letters waiting, gathered from any store.

Owns the reads that `core/waiting.py` needs, through the contract alone. `holds_of` answers for one letter;
`left_waiting` for all that is pending, by queue and kind, which is what `worker --until-idle` leaves behind.
Judges nothing: the rule and its words are core's.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from redrive.core.letter import Status
from redrive.core.waiting import Hold, Line, holds
from redrive.stores.contract import QueueSpec, QueueState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redrive.core.breaker import Breaker
    from redrive.core.letter import Letter
    from redrive.stores.contract import Store, Tally, WorkerBeat


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """Pending letters of one kind in one queue, and what holds all of them; nothing if each has a reason of its own."""

    queue: str
    kind: str
    count: int
    holds: list[Hold]

    @property
    def text(self) -> str:
        """All of it in a line."""
        count = "1 letter" if self.count == 1 else f"{self.count} letters"
        why = "; ".join(hold.text for hold in self.holds) or "not due yet, or behind other letters"
        return f"{count} of {self.kind} in queue {self.queue}: {why}"


class _Shared(NamedTuple):
    """What all lines have in common: one read of each."""

    tallies: Sequence[Tally]
    queues: Mapping[str, QueueState]
    workers: Sequence[WorkerBeat]
    breakers: Mapping[str, Breaker]


async def holds_of(store: Store, letter: Letter) -> list[Hold]:
    """Return what keeps *letter* from running; nothing if it is not pending, or waits for a free worker only."""
    standing = await store.standing(letter.id) if letter.status is Status.PENDING else None
    return [] if standing is None else holds(_line(await _shared(store), letter.queue, letter.kind), standing)


async def left_waiting(store: Store) -> list[Left]:
    """Return all that is pending, by queue and kind, with what holds it; where nothing is, one read says so."""
    waiting: Counter[tuple[str, str]] = Counter()
    for tally in await store.tallies(Status.PENDING):
        if tally.count:
            waiting[tally.queue, tally.kind] += tally.count
    if not waiting:
        return []
    shared = await _shared(store)
    return [
        Left(queue=queue, kind=kind, count=count, holds=holds(_line(shared, queue, kind)))
        for (queue, kind), count in sorted(waiting.items())
    ]


async def _shared(store: Store) -> _Shared:
    queues = {state.spec.name: state for state in await store.queues()}
    return _Shared(await store.tallies(), queues, await store.workers(), await store.breakers())


def _line(shared: _Shared, queue: str, kind: str) -> Line:
    state = shared.queues.get(queue) or QueueState(spec=QueueSpec(name=queue))
    needed = {name for beat in shared.workers if (name := beat.breaker_of(queue, kind))}
    return Line(
        queue=queue,
        kind=kind,
        workers=sum(beat.alive and beat.handles(queue, kind) for beat in shared.workers),
        breakers=tuple(shared.breakers[name] for name in sorted(needed) if name in shared.breakers),
        paused=state.paused,
        paused_by=state.paused_by,
        reason=state.reason,
        rate=state.spec.rate,
        max_in_flight=state.spec.max_in_flight,
        in_flight=sum(one.count for one in shared.tallies if one.queue == queue and one.status == Status.IN_FLIGHT),
    )
