"""
No letter stays past lease and sweep: how that is seen, and judged, whatever the machine's speed.

Owns the rule, in sweeps and not in seconds, because a worker that is killed, or waits for a
core, sweeps late and that is no fault:
(1) a lease that had ended before a sweep began is gone when that sweep has ended;
(2) a worker that runs begins a sweep every interval, by a metronome in its own event loop;
(3) a sweep ends: the store does not answer the rest of the worker again and again before it.
A sweep that was killed, or that the store refused, proves nothing and is left out.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from redrive.engine.worker.duties.sweeping import Sweeper
from redrive.engine.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from tests.torture.history import Log
    from tests.torture.looks import Lease

FOLDER = "sweeps"
_RESTS = 3  # pulses between two sweeps: one sleep lets two through, whatever holds the loop up
_STARVED = 200  # pulses, each with answers of the store, during one sweep of half a dozen calls; ten were seen


class Metronome:
    """Notes, in a worker's process, when it sweeps, beside pulses of the sweep's interval in the same loop."""

    def __init__(self, log: Log, now_ms: Callable[[], int], interval: float) -> None:
        self._log, self._now_ms, self._interval = log, now_ms, interval
        self.answers = 0  # of the store, to the worker's rounds

    def watch(self) -> None:
        """Watch every worker that this process runs from now on."""
        duties = Worker._duties

        def accompanied(worker: Worker) -> list:
            self._note("ready")
            return [*duties(worker), self._beat()]

        Worker._duties = accompanied
        Sweeper.rescue = self._watched(Sweeper.rescue, "swept")
        for name in ("fail_stranded", "retain", "announce_orphans"):
            # the rest of a sweep takes its time, and takes nothing back
            setattr(Sweeper, name, self._watched(getattr(Sweeper, name), "broken"))

    def _watched(
        self, step: Callable[[Sweeper], Awaitable[None]], at_its_end: str
    ) -> Callable[[Sweeper], Awaitable[None]]:
        async def watched(sweep: Sweeper) -> None:
            self._note("began")
            ended = "broken"
            try:
                await step(sweep)
                ended = at_its_end
            finally:
                self._note(ended)

        return watched

    async def _beat(self) -> None:
        while True:
            before = self.answers
            await asyncio.sleep(self._interval)
            self._note("pulse", int(self.answers > before))

    def _note(self, event: str, answered: int = 0) -> None:
        self._log.write((event, self._now_ms(), answered))


class Sweep(NamedTuple):
    """A sweep that came to its end."""

    began: int  # milliseconds of the clock by which the store counts leases
    ended: int


class Part:
    """What one process did: its sweeps, from when to when it was ready, and how far it strayed from the rhythm."""

    def __init__(self, lines: list[str]) -> None:
        self.sweeps: list[Sweep] = []
        self.rested, self.starved = 0, 0  # the most pulses between two sweeps; with answers, during one
        self._sweep: int | None = None  # when the one under way began
        self._pulses = 0  # since it did, or since the last one ended
        words = [(event, int(at), answered == "1") for event, at, answered in map(str.split, lines)]
        for event, at, answered in words:
            self._take(event, at, answered=answered)
        self.ready = (words[0][1], words[-1][1]) if words else (0, 0)

    def _take(self, event: str, at: int, *, answered: bool) -> None:
        if event == "pulse":
            self._pulse(answered=answered)
            return
        if event == "swept" and self._sweep is not None:
            self.sweeps.append(Sweep(self._sweep, at))
        self._sweep, self._pulses = (at if event == "began" else None), 0

    def _pulse(self, *, answered: bool) -> None:
        if self._sweep is None:
            self._pulses += 1
            self.rested = max(self.rested, self._pulses)
        else:
            self._pulses += answered
            self.starved = max(self.starved, self._pulses)


class Figures(msgspec.Struct, kw_only=True):
    """What the evidence says of it."""

    sweeps: int  # that came to their end
    ended: int  # leases that were seen after their end
    overdue_ms: int  # the longest that one was
    able_ms: int  # … counting only while a worker ran
    sweep_ms: int  # the longest sweep
    rested: int  # the most pulses between two sweeps of one worker
    starved: int  # the most pulses, each with answers to others, during one


def judge(ended: Mapping[Lease, int], folder: Path) -> tuple[list[str], Figures]:
    """Return what is wrong; *ended* has each lease that was seen after its end, and when it was seen last."""
    parts = [Part(path.read_text().splitlines()) for path in sorted(folder.glob("*.log"))]
    sweeps = sorted(sweep for part in parts for sweep in part.sweeps)
    able = _joined(sorted(part.ready for part in parts))
    found = Figures(
        sweeps=len(sweeps),
        ended=len(ended),
        overdue_ms=max((seen - lease.until_ms for lease, seen in ended.items()), default=0),
        able_ms=max((_within(able, lease.until_ms, seen) for lease, seen in ended.items()), default=0),
        sweep_ms=max((sweep.ended - sweep.began for sweep in sweeps), default=0),
        rested=max((part.rested for part in parts), default=0),
        starved=max((part.starved for part in parts), default=0),
    )
    return [*_outlived(ended, sweeps), *_out_of_rhythm(found)], found


def _outlived(ended: Mapping[Lease, int], sweeps: list[Sweep]) -> list[str]:
    """(1): of the sweeps that began after a lease had ended, none may have ended before it was seen again."""
    begins = [sweep.began for sweep in sweeps]
    first_ends = list(accumulate((sweep.ended for sweep in reversed(sweeps)), min))[::-1]
    late = []
    for lease, seen in ended.items():
        place = bisect_right(begins, lease.until_ms)
        if place < len(sweeps) and first_ends[place] < seen:
            late.append(f"{lease.letter}@{lease.token} by {seen - first_ends[place]} ms")
    return [f"{len(late)} leases outlived a sweep: {', '.join(late[:5])}"] if late else []


def _out_of_rhythm(found: Figures) -> list[str]:
    """(2) and (3)."""
    problems = [f"a worker that ran did not sweep for {found.rested} intervals"] if found.rested > _RESTS else []
    if found.starved > _STARVED:
        problems.append(f"a sweep did not end while the store answered others in {found.starved} intervals")
    return problems


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for begin, end in spans:
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _within(spans: list[tuple[int, int]], begin: int, end: int) -> int:
    return sum(max(0, min(end, span[1]) - max(begin, span[0])) for span in spans)
