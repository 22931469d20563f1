"""
How many letters of what may be claimed and run in this process.

Owns capacity: a line is one or more kinds of one queue that share limits; it knows what
it holds ready, what runs, and how far ahead it may claim. Knows no store and no engine.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from redrive.stores.contract import Want

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from redrive.engine.handler import Handler
    from redrive.stores.contract import Claim


class Lane:
    """A queue's share of this process: how many of its letters run at once."""

    __slots__ = ("concurrency", "name", "running")

    def __init__(self, name: str, concurrency: int) -> None:
        self.name, self.concurrency, self.running = name, concurrency, 0


class Line:
    """Kinds of one queue that share limits."""

    __slots__ = (
        "asked",
        "batches",
        "breaker",
        "concurrency",
        "generation",
        "kinds",
        "lane",
        "most",
        "ready",
        "rests_until",
        "running",
        "size",
    )

    def __init__(
        self,
        lane: Lane,
        kinds: tuple[str, ...],
        concurrency: int,
        most: int,
        breaker: str | None,
        *,
        generation: int | None = None,
    ) -> None:
        self.generation = generation  # only letters of this one, and those of none
        self.lane, self.kinds, self.concurrency, self.breaker = lane, kinds, concurrency, breaker
        self.most = max(most, concurrency)  # the farthest it may claim ahead
        self.batches = 2 if most else 1  # one that runs, and one that is on its way if it may claim ahead at all
        self.size = concurrency  # how many letters it wants to hold now
        self.running = 0
        self.rests_until = 0.0  # a fault of ours met its last claim: when, by the worker's clock, it claims again
        self.asked = 0  # how many the store was asked for and has not answered yet
        self.ready: deque[Claim] = deque()

    def want(self, limit: int | None = None) -> Want | None:
        """Return what it lacks, None if it holds enough or has asked for it."""
        lacking = min(self.size, self.batches * self.size - len(self.ready) - self.running - self.asked)
        lacking = lacking if limit is None else min(lacking, limit - self.asked)
        return Want(self.lane.name, self.kinds, lacking, self.generation) if lacking > 0 else None

    @property
    def may_start(self) -> bool:
        """Whether one more may run."""
        return self.running < self.concurrency and self.lane.running < self.lane.concurrency

    def adapt(self, claimed: int) -> None:
        """Claim farther ahead while letters are done as fast as they come, less far when they wait."""
        if self.ready:
            self.size = max(self.concurrency, self.size // 2)
        elif claimed and not self.running:
            self.size = min(self.most, self.size * 2)


class Lines:
    """All lines of a process, by kind."""

    def __init__(
        self,
        handlers: Iterable[Handler],
        lanes: dict[str, int],
        *,
        default: int,
        prefetch: int,
        generation: int | None = None,
    ) -> None:
        self._lanes = dict(lanes)
        self._default, self._prefetch, self._generation = default, prefetch, generation
        self.by_kind: dict[str, Line] = {}
        self.all: list[Line] = []
        shared: dict[str, list[Handler]] = {}
        for handler in handlers:
            plain = handler.engine == "async" and handler.concurrency is None and handler.breaker is None
            name = handler.queue if plain else f"{handler.queue}\0{handler.kind}"
            shared.setdefault(name, []).append(handler)
        queues = {handlers[0].queue for handlers in shared.values()}
        self._by_queue = {name: Lane(name, self._lanes.get(name, default)) for name in sorted(queues)}
        for group in shared.values():
            self._add(group)

    def _add(self, group: list[Handler]) -> None:
        lane = self._by_queue[group[0].queue]
        own = group[0].concurrency or lane.concurrency
        # Threads and processes cannot be quick enough for a long line ahead of them.
        ahead = self._prefetch if group[0].engine == "async" else min(self._prefetch, 4 * own)
        most = ahead // 2  # a batch: two of them may be held
        kinds, most_running = tuple(handler.kind for handler in group), min(own, lane.concurrency)
        line = Line(lane, kinds, most_running, most, group[0].breaker, generation=self._generation)
        self.all.append(line)
        for handler in group:
            self.by_kind[handler.kind] = line

    def every_want(self) -> list[Want]:
        """Return a want for all that this process handles."""
        return [Want(line.lane.name, line.kinds, 1, line.generation) for line in self.all]

    def startable(self) -> Iterator[tuple[Line, Claim]]:
        """Yield what may start now, in order, line by line; counts it as running."""
        for line in self.all:
            while line.ready and line.may_start:
                line.running += 1
                line.lane.running += 1
                yield line, line.ready.popleft()

    def shrink(self) -> None:
        """Claim no farther ahead than at the beginning."""
        for line in self.all:
            line.size = line.concurrency

    @property
    def running(self) -> int:
        """How many letters run."""
        return sum(lane.running for lane in self._by_queue.values())
