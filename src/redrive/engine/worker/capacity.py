"""
How many letters this process runs at once.

Owns the slots: those of a queue, and those that one or more kinds of a queue share. What was claimed for
slots and has not begun is in `ahead`. Knows no store and no engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.engine.worker.ahead import Ahead
from redrive.stores.contract import Want

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from redrive.engine.handler import Handler
    from redrive.stores.contract import Claim


class QueueSlots:
    """A queue's share of this process: how many of its letters run at once."""

    __slots__ = ("concurrency", "name", "running")

    def __init__(self, name: str, concurrency: int) -> None:
        self.name, self.concurrency, self.running = name, concurrency, 0


class Slots:
    """The slots that kinds of one queue share."""

    __slots__ = ("ahead", "breaker", "concurrency", "generation", "kinds", "queue", "rests_until", "running")

    def __init__(
        self,
        queue: QueueSlots,
        kinds: tuple[str, ...],
        concurrency: int,
        most: int,
        breaker: str | None,
        *,
        generation: int | None = None,
    ) -> None:
        self.generation = generation  # claims letters of this one, and those of none
        self.queue, self.kinds, self.concurrency, self.breaker = queue, kinds, concurrency, breaker
        self.running = 0
        self.ahead = Ahead(concurrency, most)
        self.rests_until = 0.0  # claims nothing before, by the worker's clock: a fault of ours met its last claim

    def want(self, limit: int | None = None) -> Want | None:
        """Return what to claim for these slots, None if they hold enough or have asked for it."""
        lacking = self.ahead.lacking(self.running)
        lacking = lacking if limit is None else min(lacking, limit - self.ahead.asked)
        return Want(self.queue.name, self.kinds, lacking, self.generation) if lacking > 0 else None

    @property
    def may_start(self) -> bool:
        """Whether one more letter may run."""
        return self.running < self.concurrency and self.queue.running < self.queue.concurrency

    def begin(self) -> None:
        """Count one more letter as running."""
        self.running += 1
        self.queue.running += 1

    def end(self) -> None:
        """Count one letter less."""
        self.running -= 1
        self.queue.running -= 1


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
        # Threads and processes are too slow for many letters claimed ahead of them.
        ahead = self._prefetch if group[0].engine == "async" else min(self._prefetch, 4 * own)
        most = ahead // 2  # a batch: two of them may be held
        kinds, most_running = tuple(handler.kind for handler in group), min(own, queue.concurrency)
        slots = Slots(queue, kinds, most_running, most, group[0].breaker, generation=self._generation)
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

    def startable(self) -> Iterator[tuple[Slots, Claim]]:
        """Yield what may start now, in order, and count it as running."""
        for slots in self.all:
            ready = slots.ahead.ready
            while ready and slots.may_start:
                slots.begin()
                yield slots, ready.popleft()

    def shrink(self) -> None:
        """Claim no farther ahead than at the start."""
        for slots in self.all:
            slots.ahead.shrink()

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
