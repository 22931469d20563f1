"""
One act of an operator on the letters of a lane: replay, readmit, quarantine.

Owns the order: read a batch, choose, send, wait for the broker, note in the ledger, go on. The first letters may be a
canary: the rest follows only if the node did not fail them again. A crash between the broker's answer and the note
sends a batch again at most; every letter carries the place that it came from as its replay's id. Blocks; for commands
and threads. Knows no command and no gRPC.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redrive.engine.clock import SystemClock
from redrive.failpoints import hit
from redrive.sources.kafka.replay.rate import ReplayRate
from redrive.sources.pipeline.admin.lanes.lane_letter import refusal_of
from redrive.sources.pipeline.admin.lanes.ledger import LaneLedger, letters_of
from redrive.sources.pipeline.admin.lanes.sending import LaneProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.records.output import Output
    from redrive.sources.pipeline.admin.lanes.canary import Canary
    from redrive.sources.pipeline.admin.lanes.lane_letter import LaneLetter
    from redrive.sources.pipeline.admin.lanes.letter_choice import LetterChoice
    from redrive.sources.pipeline.admin.lanes.sending import SentPlace

_SAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneJob:
    """Which letters of the lane *topic* go where: *output* makes the message of a letter."""

    topic: str
    choice: LetterChoice
    output: Callable[[LaneLetter], Output]
    needs_stream: bool = True  # no: a letter without a stream can be moved too
    rate: float | None = None  # letters a second
    limit: int | None = None
    canary: int = 0  # letters that go first


@dataclass(slots=True)
class LaneReport:
    """What a job has done, or would do: matched = sent + refused, unless it is halted, limited or a dry run."""

    read: int = 0  # letters that were not sent away before
    matched: int = 0
    sent: int = 0
    refused: int = 0  # they hold nothing that could be sent
    refusal: str = ""  # why the first of them is refused
    came_back: int = 0  # of the canary
    is_halted: bool = False  # because of the canary; the rest was not sent
    is_finished: bool = False
    is_noted: bool = True  # no: the ledger is too large for a commit, and a later job may send some letters again
    message: str = ""
    by_error_type: Counter[str] = field(default_factory=Counter)  # of the matched ones
    samples: list[LaneLetter] = field(default_factory=list)


def preview(kafka: KafkaConfig, job: LaneJob) -> LaneReport:
    """Return what *job* would do; send nothing."""
    report, ledger = LaneReport(), LaneLedger(kafka, job.topic)
    try:
        for letters in letters_of(kafka, ledger):
            _chosen(job, letters, report)
    finally:
        ledger.close()
    report.is_finished = True
    return report


def carry_out(
    kafka: KafkaConfig, job: LaneJob, *, canary: Canary | None = None, clock: Clock | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Iterator[LaneReport]:  # fmt: skip
    """Carry *job* out; yield its report after every batch, the last time finished or halted. Raise SourceError."""
    ledger = LaneLedger(kafka, job.topic)
    running = _RunningJob(kafka, job, ledger, canary, ReplayRate(job.rate, clock or SystemClock(), is_stopping))
    try:
        for letters in letters_of(kafka, ledger):
            for part in _parts(_chosen(job, letters, running.report), job):
                if is_stopping() or running.report.is_halted:
                    break
                running.send(part)
                yield running.report
            if is_stopping() or running.report.is_halted:
                break
        running.report.is_finished = not running.report.is_halted and not is_stopping()
    finally:
        ledger.close()
    yield running.report


class _RunningJob:
    """A job under way."""

    def __init__(
        self, kafka: KafkaConfig, job: LaneJob, ledger: LaneLedger, canary: Canary | None, rate: ReplayRate
    ) -> None:
        self.report = LaneReport()
        self._job, self._ledger, self._canary, self._rate = job, ledger, canary, rate
        self._producer = LaneProducer(kafka)

    def send(self, letters: Sequence[LaneLetter]) -> None:
        """Send *letters*, the canary first and alone."""
        ahead = self._job.canary - self.report.sent
        if ahead > 0:
            self._send(letters[:ahead], watched=True)
            letters = letters[ahead:]
        if letters and not self.report.is_halted:
            self._send(letters, watched=False)

    def _send(self, letters: Sequence[LaneLetter], *, watched: bool) -> None:
        places = self._producer.send([self._job.output(letter) for letter in letters])
        hit("pipeline.replay_sent")
        pairs = zip(letters, places, strict=True)
        confirmed = [(letter, place) for letter, place in pairs if place is not None]
        self.report.is_noted &= self._ledger.add(letter for letter, _ in confirmed)
        self.report.sent += len(confirmed)
        if len(confirmed) < len(letters):
            raise self._producer.problem(self._job.topic)
        if watched and self._canary is not None:
            self._watch(self._canary, confirmed)
        self._rate.pause(len(confirmed))

    def _watch(self, canary: Canary, sent: list[tuple[LaneLetter, SentPlace]]) -> None:
        verdict = canary.watch(sent)
        self.report.came_back += verdict.came_back
        self.report.is_halted = not verdict.is_good
        self.report.message = verdict.message


def _chosen(job: LaneJob, letters: Sequence[LaneLetter], report: LaneReport) -> list[LaneLetter]:
    """Return the letters that are to be sent, and count all of them."""
    report.read += len(letters)
    found = []
    for letter in letters:
        if not job.choice.picks(letter.message) or (job.limit is not None and report.matched >= job.limit):
            continue
        report.matched += 1
        report.by_error_type[letter.message.error_type] += 1
        if len(report.samples) < _SAMPLES:
            report.samples.append(letter)
        if job.needs_stream and (why := refusal_of(letter)):
            report.refused += 1
            report.refusal = report.refusal or why
        else:
            found.append(letter)
    return found


def _parts(letters: list[LaneLetter], job: LaneJob) -> Iterator[list[LaneLetter]]:
    """Yield *letters* in parts that the rate allows within a second."""
    size = len(letters) if job.rate is None else max(1, int(job.rate))
    for at in range(0, len(letters), max(1, size)):
        yield letters[at : at + size]
