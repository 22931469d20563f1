"""
How many letters this process runs at once.

Owns the slots: those of a queue, and those that one or more kinds of a queue share, and whose turn it is when a slot
of the queue becomes free. What was claimed for slots and has not begun is in `ahead`; how long letters run is in
`run_times`. Knows no store and no engine.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from redrive.engine.worker.slots.ahead import Ahead
from redrive.engine.worker.slots.run_times import RunTimes, letters_ahead, too_few
from redrive.stores.contract import Want

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.engine.handler import Handler


class QueueSlots:
    """A queue's share of this process: how many of its letters run at once, and the slots that share it."""

    __slots__ = ("concurrency", "name", "running", "sharing")

    def __init__(self, name: str, concurrency: int) -> None:
        self.name, self.concurrency, self.running = name, concurrency, 0
        self.sharing: deque[Slots] = deque()

    def next(self) -> Slots | None:
        """Return slots that may start a letter now, None if there are none; those that share a queue take turns."""
        for _ in range(len(self.sharing) if self.running < self.concurrency else 0):
            slots = self.sharing[0]
            self.sharing.rotate(-1)
            if slots.ahead.ready and slots.running < slots.concurrency:
                return slots
        return None


class Slots:
    """The slots that kinds of one queue share."""

    __slots__ = (
        "_ended", "_peak", "_seconds", "ahead", "breaker", "concurrency", "generation", "is_plain", "kinds", "queue",
        "rests_until", "run_times", "running",
    )  # fmt: skip

    def __init__(
        self,
        queue: QueueSlots,
        kinds: tuple[str, ...],
        concurrency: int,
        prefetch: int,
        breaker: str | None,
        *,
        generation: int | None = None,
    ) -> None:
        self.generation = generation  # claims letters of this one, and those of none
        self.queue, self.kinds, self.concurrency, self.breaker = queue, kinds, concurrency, breaker
        self.running = self._peak = self._ended = 0
        self._seconds = 0.0  # all ends minus all beginnings: with those that run now, how long slots were occupied
        self.ahead = Ahead(concurrency, prefetch)
        self.run_times = RunTimes(concurrency)
        self.rests_until = 0.0  # claims nothing before, by the worker's clock: a fault of ours met its last claim
        queue.sharing.append(self)
        self.is_plain = False
        for slots in queue.sharing:  # whether a slot that becomes free may take the next letter without a question
            slots.is_plain = len(queue.sharing) == 1 and slots.breaker is None

    def want(self, limit: int | None = None) -> Want | None:
        """Return what to claim for these slots, None if they hold enough or have asked for it."""
        lacking = self.ahead.lacking(self._free)
        lacking = lacking if limit is None else min(lacking, limit - self.ahead.asked)
        return Want(self.queue.name, self.kinds, lacking, self.generation) if lacking > 0 else None

    @property
    def may_start(self) -> bool:
        """Whether one more letter may run."""
        return self.running < self.concurrency and self.queue.running < self.queue.concurrency

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or is ready here."""
        return not (self.running or self.ahead.ready)

    @property
    def _free(self) -> int:
        return min(self.concurrency - self.running, self.queue.concurrency - self.queue.running)

    def begin(self, now: float) -> None:
        """Count one more letter as running."""
        self.running = running = self.running + 1
        self.queue.running += 1
        self._seconds -= now
        if running > self._peak:  # noqa: PLR1730 - max() costs a call for each letter
            self._peak = running

    def end(self, now: float, letters: int = 1) -> None:
        """Count one letter less, or *letters* that ran one after the other in one slot."""
        self.running -= 1
        self.queue.running -= 1
        self._seconds += now
        self._ended += letters

    def share(self, most: int) -> int:
        """Return how many letters one slot may take now, at most *most*: as many as every other free slot."""
        return max(1, min(most, (1 + len(self.ahead.ready)) // max(1, self._free))) if len(self.kinds) == 1 else 1

    def learn(self, now: float, exchange: float) -> None:
        """Adapt how far ahead to claim to recent run times, and to the seconds that an *exchange* takes."""
        times = self.run_times
        ended = times.note(self._seconds + self.running * now, self._ended, self._peak)
        self._peak = self.running
        wanted = letters_ahead(times.mean, times.parallel, exchange, self.ahead.most)
        self.ahead.low = too_few(times.mean, times.parallel, exchange)
        if ended or wanted < self.ahead.size:
            self.ahead.size = wanted


class Together:
    """Letters of one handler that run one after the other in one slot."""

    __slots__ = ("_count", "_last", "handler", "left", "slots")

    def __init__(self, slots: Slots, handler: Handler, count: int, now: float) -> None:
        self.slots, self.handler, self.left, self._count, self._last = slots, handler, count, count, now

    def ended(self, now: float) -> float:
        """Count one letter less; return the seconds since the one before. The last one frees the slot."""
        self.left -= 1
        if not self.left:
            self.slots.end(now, self._count)
        seconds, self._last = now - self._last, now
        return seconds


class Capacity:
    """All slots of a process, by kind."""

    def __init__(
        self,
        handlers: Iterable[Handler],
        concurrency: dict[str, int],
        *,
        default: int,
        prefetch: int,
        generation: int | None = None,
    ) -> None:
        """Give each queue its *concurrency*, or the *default*."""
        self._prefetch, self._generation = prefetch, generation
        self.by_kind: dict[str, Slots] = {}
        self.all: list[Slots] = []
        groups = _sharing(handlers)
        queues = sorted({group[0].queue for group in groups})
        self._by_queue = {name: QueueSlots(name, concurrency.get(name, default)) for name in queues}
        for group in groups:
            self._add(group)

    def _add(self, group: list[Handler]) -> None:
        queue = self._by_queue[group[0].queue]
        own = group[0].concurrency or queue.concurrency
        kinds, most_running = tuple(handler.kind for handler in group), min(own, queue.concurrency)
        slots = Slots(queue, kinds, most_running, self._prefetch, group[0].breaker, generation=self._generation)
        self.all.append(slots)
        for handler in group:
            self.by_kind[handler.kind] = slots

    def adopt(self, kind: str, like: str) -> None:
        """Let *kind* share the slots of the kind *like* from now on."""
        slots = self.by_kind[like]
        slots.kinds = (*slots.kinds, kind)
        self.by_kind[kind] = slots

    def every_want(self) -> list[Want]:
        """Return a want for every kind that this process handles."""
        return [Want(slots.queue.name, slots.kinds, 1, slots.generation) for slots in self.all]

    @property
    def queues(self) -> Iterable[QueueSlots]:
        """Every queue that this process works on."""
        return self._by_queue.values()

    def learn(self, now: float, exchange: float) -> None:
        """Adapt how far ahead to claim for all slots; see `Slots.learn`."""
        for slots in self.all:
            slots.learn(now, exchange)

    def shrink(self) -> None:
        """Claim nothing ahead until letters have ended again."""
        for slots in self.all:
            slots.run_times.forget()
            slots.ahead.size = 0

    @property
    def has_plenty(self) -> bool:
        """Whether letters run, and their slots hold more than they use during an exchange with the store."""
        busy = [slots.ahead for slots in self.all if not slots.is_idle]
        return bool(busy) and all(len(ahead.ready) > ahead.low for ahead in busy)

    @property
    def has_idle(self) -> bool:
        """Whether slots are free and have no letter."""
        return any(slots.may_start and not slots.ahead.ready for slots in self.all)

    @property
    def has_ready(self) -> bool:
        """Whether any letter was claimed and has not begun."""
        return any(slots.ahead.ready for slots in self.all)

    @property
    def running(self) -> int:
        """How many letters run."""
        return sum(queue.running for queue in self._by_queue.values())


def _sharing(handlers: Iterable[Handler]) -> list[list[Handler]]:
    """Group handlers that share slots: those of a queue that are async and have no limit of their own."""
    groups: dict[str, list[Handler]] = {}
    for handler in handlers:
        plain = handler.engine == "async" and handler.concurrency is None and handler.breaker is None
        name = handler.queue if plain else f"{handler.queue}\0{handler.kind}"
        groups.setdefault(name, []).append(handler)
    return list(groups.values())
