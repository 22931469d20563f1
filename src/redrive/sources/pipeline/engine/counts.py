"""
What a node has done.

Owns the counts of a node in this engine, for health, metrics and the admin service. Knows no part that reports them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from redrive.sources.pipeline.engine.repeats import RecentSteps

if TYPE_CHECKING:
    from redrive.sources.pipeline.protos.document_pb2 import PipeStream

_MINUTE = 60  # seconds
LATENCY_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)  # seconds


class MinuteRate:
    """How often something happened in the last minute, by a clock that never jumps."""

    def __init__(self) -> None:
        self._counts, self._seconds = [0] * _MINUTE, [-1] * _MINUTE  # a count for each second, and which second it is
        self._since: float | None = None

    def note(self, now: float) -> None:
        """Note that it happened."""
        second = int(now)
        at = second % _MINUTE
        if self._seconds[at] != second:
            self._seconds[at], self._counts[at] = second, 0
        self._counts[at] += 1
        self._since = now if self._since is None else self._since

    def a_second(self, now: float) -> float:
        """Return how often a second, over the last minute or since the first time."""
        recent = sum(n for second, n in zip(self._seconds, self._counts, strict=True) if second > now - _MINUTE)
        return recent / min(_MINUTE, max(1.0, now - self._since)) if self._since is not None else 0.0


@dataclass(slots=True)
class NodeCounts:
    """Documents of one node since this engine started; a document that is processed again counts again."""

    received: int = 0  # by Kafka or gRPC
    repeated: int = 0  # begun again after a crash, a rebalance or by a caller, as far as this engine remembers
    succeeded: int = 0  # steps, also those with a logical failure
    failures: int = 0  # logical ones, of modules that said so
    skipped: int = 0  # their condition was false, or the module said so
    retried: int = 0  # calls that failed and were made again
    dead: int = 0  # sent to the DLQ
    quarantined: int = 0
    dropped: int = 0  # failed while the node's DLQ was off
    ended: int = 0  # branches that ended here
    sent: Counter[str] = field(default_factory=Counter)  # by edge
    calls: Counter[int] = field(default_factory=Counter)  # documents that left the node, by the calls that they took
    seconds: float = 0.0  # in calls of the module
    took: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS) + 1))  # calls, by how long they took
    running: int = 0  # steps under way now
    _rate: MinuteRate = field(default_factory=MinuteRate)  # of steps that succeeded; not shown when the engine ends
    _recent: RecentSteps = field(default_factory=RecentSteps)
    reasons: Counter[str] = field(default_factory=Counter)  # error types of failed steps
    _last_error: tuple[str, str] = (
        "",
        "",
    )  # the type and the text of the newest of them; a text is not shown at the end

    def shown(self) -> dict[str, object]:
        """Return the counts by their names."""
        return {each.name: getattr(self, each.name) for each in fields(self) if not each.name.startswith("_")}

    def began(self, stream: PipeStream) -> None:
        """Note that the node begins *stream*."""
        self.repeated += self._recent.is_repeat(stream)

    def called(self, seconds: float) -> None:
        """Note a call of the module that took so long, whatever came of it."""
        self.seconds += seconds
        self.took[bisect_left(LATENCY_BOUNDS, seconds)] += 1

    def went_well(self, now: float) -> None:
        """Note a step that succeeded."""
        self.succeeded += 1
        self._rate.note(now)

    def rate(self, now: float) -> float:
        """Return how many steps a second succeeded in the last minute."""
        return self._rate.a_second(now)

    def failed(self, word: str, text: str) -> None:
        """Note a step that failed."""
        self.reasons[word] += 1
        self._last_error = word, text

    @property
    def last_error(self) -> tuple[str, str]:
        """The type and the text of the newest error; both are empty if there was none."""
        return self._last_error

    def within(self, share: float) -> float | None:
        """Return the bound of a bucket, in seconds, within which that share of the calls ended; None without a call."""
        wanted, ended = share * sum(self.took), 0
        for bound, calls in zip((*LATENCY_BOUNDS, LATENCY_BOUNDS[-1]), self.took, strict=True):
            ended += calls
            if ended and ended >= wanted:
                return bound
        return None
