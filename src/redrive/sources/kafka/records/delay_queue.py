"""
A delay queue.

Owns a heap of things and the instants at which they are due. Reads no clock: the caller passes the time.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class DelayQueue(Generic[T]):
    """Things that wait, soonest first; those due at the same instant in the order of arrival."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._count = count()

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._heap)

    @property
    def next_due(self) -> float | None:
        """When the first of them is due."""
        return self._heap[0][0] if self._heap else None

    def push(self, due: float, thing: T) -> None:
        """Keep *thing* until *due*."""
        heapq.heappush(self._heap, (due, next(self._count), thing))

    def pop_due(self, now: float) -> list[T]:
        """Remove and return what is due."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        return due

    def remove(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Remove and return everything that is *unwanted*, due or not."""
        removed = [entry[2] for entry in self._heap if unwanted(entry[2])]
        if removed:
            self._heap = [entry for entry in self._heap if not unwanted(entry[2])]
            heapq.heapify(self._heap)
        return removed
