"""
Looks at a store from outside while a run goes on, and what the run came to.

Owns the samples: the books of each in one snapshot, and which leases had ended. The rules
are `checker`'s and `sweeps`'.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec
from tests.torture import checker, looks
from tests.torture.checker import Verdict
from tests.torture.history import History
from tests.torture.runs import sweeps
from tests.torture.runs.sweeps import Figures

if TYPE_CHECKING:
    from tests.torture.looks import Lease, Look

_SHOWN = 5
_RESCUED = "worker_"  # died, hung or crashed


class Outcome(msgspec.Struct, kw_only=True):
    """A run's verdict and its figures."""

    verdict: Verdict
    cycles: int
    samples: int
    sweeps: Figures
    rescued: int  # letters that were taken back after their lease had ended
    stall_ms: int  # the longest that the sampler itself was held up
    seconds: float


class Sampler:
    """Looks all the time; use as a context around a run."""

    def __init__(self, place: str | Path, every: float = 0.04) -> None:
        self._place, self._every, self._over = place, every, threading.Event()
        self._began, self._last = time.monotonic(), 0.0
        self.samples, self.stall = 0, 0.0
        self.problems: list[str] = []
        self.ended: dict[Lease, int] = {}  # leases seen after their end, and when last
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def outcome(self, folder: Path, *, cycles: int, floor: int, problems: list[str] | None = None) -> Outcome:
        """Judge the run that is over, with the *problems* that were seen besides."""
        history = History(folder / "history")
        verdict = checker.judge(history, self._place, floor=floor)
        late, figures = sweeps.judge(self.ended, folder / sweeps.FOLDER)
        verdict.samples = self.samples
        verdict.problems += [*(problems or []), *self.problems[:_SHOWN], *late]
        settled = (each for letter in history.settled.values() for each in letter)
        return Outcome(
            verdict=verdict,
            cycles=cycles,
            samples=self.samples,
            sweeps=figures,
            rescued=sum(each.why.startswith(_RESCUED) for each in settled),
            stall_ms=round(self.stall * 1000),
            seconds=time.monotonic() - self._began,
        )

    def _look(self) -> None:
        while isinstance(self._place, Path) and not self._place.exists():
            if self._over.wait(self._every):
                return
        with looks.at(self._place) as look:
            while not self._over.wait(self._every):
                try:
                    self._sample(look)
                except looks.Away:
                    self._last = 0.0

    def _sample(self, look: Look) -> None:
        found = checker.sample(look)
        now = look.now_ms()  # first: what was done before this moment is in what is read now
        late = [lease for lease in look.leases() if lease.until_ms < now]
        self.samples += 1
        self.problems += [f"sample {self.samples}: {problem}" for problem in found]
        self.ended.update(dict.fromkeys(late, now))
        moment = time.monotonic()
        self.stall, self._last = max(self.stall, moment - self._last if self._last else 0.0), moment
