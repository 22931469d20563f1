"""
Time and chance.

Owns the one clock and the one die of the engine, and the ids of new letters. All other code takes them as
arguments. Knows no due times and no leases: the store has those.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer(Protocol):
    """Something that will be called."""

    def cancel(self) -> None:
        """Cancel the call; may be called twice."""


class Timers(Protocol):
    """What calls back when time is up: an event loop, or a test's own clock."""

    def time(self) -> float:
        """Return seconds that only ever grow."""

    def call_at(self, when: float, callback: Callable[..., Any], *given: Any) -> Timer:
        """Call *callback* at that time, on the event loop."""

    def call_later(self, delay: float, callback: Callable[..., Any], *given: Any) -> Timer:
        """Call *callback* after so many seconds, on the event loop."""


class Clock(Protocol):
    """What the engine needs of time and chance; tests bring one that never waits."""

    def monotonic(self) -> float:
        """Return seconds that only ever grow; differences have a meaning, the number has none."""

    def draw(self) -> float:
        """Return a number in [0, 1): the only die."""

    async def sleep(self, seconds: float) -> None:
        """Rest this task."""

    def block(self, seconds: float) -> None:
        """Rest this thread."""

    def timers(self) -> Timers:
        """Return the timers for handlers' time limits; called on the event loop."""


_dice = random.Random()  # not the module's own: a test that seeds that one must not align a fleet's jitter
os.register_at_fork(after_in_child=_dice.seed)


class SystemClock:
    """The machine's clock and an honest die."""

    def __init__(self) -> None:
        self.monotonic = time.monotonic
        self.draw = _dice.random

    async def sleep(self, seconds: float) -> None:
        """Rest this task."""
        await asyncio.sleep(seconds)

    def block(self, seconds: float) -> None:
        """Rest this thread."""
        time.sleep(seconds)

    def timers(self) -> Timers:
        """Return the running event loop."""
        return asyncio.get_running_loop()


def unix_ms() -> int:
    """Return milliseconds since the epoch, to record when something happened."""
    return time.time_ns() // 1_000_000


class _Ids:
    """UUIDs of version 7 as text; those of one process grow. Randomness is read for many at once."""

    def __init__(self) -> None:
        self._millisecond = 0
        self._head = ""
        self._count = 0
        self._tails: list[str] = []
        # A fork must not hand out the tails that its parent will hand out too.
        os.register_at_fork(after_in_child=self._tails.clear)

    def next(self) -> str:
        """Return a new id."""
        millisecond = time.time_ns() // 1_000_000
        if millisecond > self._millisecond:
            self._begin(millisecond)
        self._count = count = self._count + 1
        if count >= len(_COUNTERS):
            self._begin(self._millisecond + 1)  # borrowed from the future, so that ids keep growing
            count = 0
        try:
            return self._head + _COUNTERS[count] + self._tails.pop()
        except IndexError:  # checking first would not help: another thread pops too
            return self._head + _COUNTERS[count] + self._more_tails()

    def _more_tails(self) -> str:
        fresh = _tails(512)
        self._tails.extend(fresh[1:])
        return fresh[0]

    def _begin(self, millisecond: int) -> None:
        digits = f"{millisecond:012x}"
        self._millisecond, self._head, self._count = millisecond, f"{digits[:8]}-{digits[8:]}-", 0


_COUNTERS = [f"7{count:03x}-" for count in range(4096)]
_VARIANT = bytes(0x80 | byte & 0x3F for byte in range(256))


def _tails(count: int) -> list[str]:
    fours, twelves = bytearray(os.urandom(2 * count)), os.urandom(6 * count)
    fours[::2] = fours[::2].translate(_VARIANT)
    return list(map("-".join, zip(fours.hex("-", 2).split("-"), twelves.hex("-", 6).split("-"), strict=True)))


new_id = _Ids().next
