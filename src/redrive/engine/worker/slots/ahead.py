"""
What was claimed ahead.

Owns the claims that this process holds and has not begun, and how many it may hold: as many as free slots, and
`size` more (`run_times` says how many). Every way out of here is a method: a letter begins, goes back with a
reason, or is lost. Knows no store, no engine and no slot.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.stores.contract import Claim

_LIGHT = 4_096  # bytes of a payload; what is handed over together should fit into a pipe


class Ahead:
    """The claims of one set of slots that wait to begin, oldest first."""

    __slots__ = ("asked", "batch", "low", "most", "ready", "size")

    def __init__(self, least: int, most: int) -> None:
        self.most = most
        self.batch = max(most // 2, least)  # claimed at once: while one batch runs, the next is on its way
        self.size = 0  # how many letters to hold ready now, besides those that free slots take at once
        self.low = 0  # with so many ready, or fewer, the next exchange may not wait
        self.asked = 0  # how many the store was asked for and has not answered yet
        self.ready: deque[Claim] = deque()

    def lacking(self, free: int) -> int:
        """Return how many letters to claim now for *free* slots; 0 or less if enough are held or asked for."""
        return min(self.batch, free + self.size - len(self.ready) - self.asked)

    def take_light(self, count: int) -> list[Claim]:
        """Return up to *count* letters that are handed over together; none behind the first that is large."""
        ready = self.ready
        taken: list[Claim] = []
        while len(taken) < count and ready and len(ready[0].letter.payload) <= _LIGHT:
            taken.append(ready.popleft())
        return taken

    def take_all(self) -> list[Claim]:
        """Return everything that has not begun, and hold none of it any longer."""
        claims = list(self.ready)
        self.ready.clear()
        return claims

    def take_late(self, is_late: Callable[[Claim], bool]) -> list[Claim]:
        """Return what has waited too long, and hold it no longer; claim nothing ahead until a letter has ended."""
        late: list[Claim] = []
        while self.ready and is_late(self.ready[0]):
            late.append(self.ready.popleft())
        if late:
            self.size = 0
        return late

    def forget(self, claim: Claim) -> None:
        """Do not begin *claim*, which another worker may hold by now; a claim that is not here is fine."""
        if claim in self.ready:
            self.ready.remove(claim)
