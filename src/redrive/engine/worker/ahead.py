"""
What was claimed ahead.

Owns the claims that this process holds and has not begun, and how far ahead of the slots it claims: farther
while letters end as fast as they arrive, less far when they wait here. Every way out of here is a method:
a letter begins, goes back with a reason, or is lost. Knows no store, no engine and no slot.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.stores.contract import Claim


class Ahead:
    """The claims of one set of slots that wait to begin, oldest first."""

    __slots__ = ("asked", "batches", "least", "most", "ready", "size")

    def __init__(self, least: int, most: int) -> None:
        self.least = least  # one letter for each slot
        self.most = max(most, least)
        self.batches = 2 if most else 1  # one that runs, and one on its way if it may claim ahead at all
        self.size = least  # how many letters make a batch now
        self.asked = 0  # how many the store was asked for and has not answered yet
        self.ready: deque[Claim] = deque()

    def lacking(self, running: int) -> int:
        """Return how many letters to claim now; 0 or less if enough are held or asked for."""
        return min(self.size, self.batches * self.size - len(self.ready) - running - self.asked)

    def adapt(self, claimed: int, running: int) -> None:
        """Claim farther ahead while letters end as fast as they arrive, less far when they wait."""
        if self.ready:
            self.size = max(self.least, self.size // 2)
        elif claimed and not running:
            self.size = min(self.most, self.size * 2)

    def shrink(self) -> None:
        """Claim no farther ahead than at the start."""
        self.size = self.least

    def take_all(self) -> list[Claim]:
        """Return everything that has not begun, and hold none of it any longer."""
        claims = list(self.ready)
        self.ready.clear()
        return claims

    def forget(self, claim: Claim) -> None:
        """Do not begin *claim*, which another worker may hold by now; a claim that is not here is fine."""
        if claim in self.ready:
            self.ready.remove(claim)
