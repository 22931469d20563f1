"""
Dead letters of a topic: browsed, counted, sent back.

Owns the replay of the dead letters that a filter picks. Each goes to the topic it came from. Once the broker has
confirmed it, its offset is committed under the replay's own group, so that an interrupted replay continues where
it stopped. Letters that were replayed too often stay. Blocks; for commands and scripts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redrive.engine.clock import SystemClock
from redrive.errors import SourceError
from redrive.signals.tracing import open_tracing
from redrive.sources.kafka.dead_letters.codec import codec_of
from redrive.sources.kafka.replay.filter import DeadLetter, Filter, read_letter
from redrive.sources.kafka.replay.producer import OutgoingLetter, ReplayProducer, outgoing_letter
from redrive.sources.kafka.replay.progress import MAX_REPLAYS
from redrive.sources.kafka.replay.rate import ReplayRate
from redrive.sources.kafka.replay.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from redrive.engine.clock import Clock
    from redrive.signals.tracing import Tracing
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.replay.other_replays import OtherReplays

_BATCH = 500
_TAIL = 50  # offsets at the end of a partition, where its newest letter most likely is


@dataclass(slots=True)
class ReplayReport:
    """What a replay did, or would do: the numbers add up to `seen`."""

    seen: int = 0
    replayed: int = 0
    left: int = 0  # not chosen
    too_often: int = 0  # already replayed max_replays times
    refused: int = 0  # in a dry run: a replay would stop at the first of them
    sent_before: int = 0  # replayed ones that another replay had sent too, as far as the broker remembers
    refusal: str = ""  # why the first refused one cannot be sent back
    by_disposition: Counter[str] = field(default_factory=Counter)  # of the chosen ones
    by_exception: Counter[str] = field(default_factory=Counter)
    stopped: bool = False  # before everything was seen, because the caller asked for it


def browse(config: KafkaConfig, topic: str, wanted: Filter) -> Iterator[DeadLetter]:
    """Yield the dead letters of *topic* that *wanted* picks, up to its current end; commit nothing."""
    reader = Reader(config, topic, f"redrive-browse-{topic}", resume=False, wanted=wanted)
    try:
        for batch in reader.batches(_BATCH):
            yield from filter(wanted.picks, read_letters(batch, config))
    finally:
        reader.close()


def read_letters(messages: Iterable[Any], config: KafkaConfig) -> Iterator[DeadLetter]:
    """Yield *messages* of a dead-letter topic as dead letters."""
    codec = codec_of(config)
    return (read_letter(message, codec) for message in messages)


def newest(config: KafkaConfig, topic: str, partition: int | None = None) -> DeadLetter | None:
    """Return the newest dead letter of *topic*, or of that *partition* of it; None if there is none."""
    last: dict[int, Any] = {}
    for tail in (_TAIL, None):  # transaction markers and aborted messages take offsets too
        wanted = Filter(partition=partition)
        reader = Reader(config, topic, f"redrive-browse-{topic}", resume=False, wanted=wanted, tail=tail)
        try:
            last = {message.partition(): message for batch in reader.batches(_BATCH) for message in batch}
            if last.keys() >= reader.partitions:
                break
        finally:
            reader.close()
    return max(read_letters(last.values(), config), key=lambda letter: letter.timestamp, default=None)


def replay(
    config: KafkaConfig,
    topic: str,
    wanted: Filter,
    *,
    allowed: tuple[str, ...] = (),
    max_replays: int = MAX_REPLAYS,
    rate: float | None = None,
    dry_run: bool = False,
    transactional: bool = False,
    earlier: OtherReplays | None = None,
    report: ReplayReport | None = None,
    clock: Clock | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
    tracing: Tracing = None,
) -> ReplayReport:
    """
    Send the dead letters of *topic* that *wanted* picks back to where they came from.

    They may go only to the source of *topic*, or to an *allowed* topic. A second replay with the same filter
    continues after the first; with a larger *max_replays* it also sends letters that the first left as replayed
    too often. *transactional* sends letters and commits progress in one transaction: `read_committed` readers
    see each letter once, even after a crash. Letters that an *earlier* replay has sent are counted.
    *report*, if given, is filled in, so that the caller has it even if this raises. When *is_stopping* returns
    True the replay ends after the batch in hand. Raise SourceError if the broker does not confirm a letter or
    its source is not allowed; letters confirmed until then stay sent.
    """
    reader = Reader(config, topic, wanted.group(topic), resume=True, wanted=wanted, max_replays=max_replays)
    one = _Replay(config, reader, topic, wanted, allowed, max_replays)
    one.report, one.earlier = report or one.report, earlier
    pace = ReplayRate(rate, clock or SystemClock(), is_stopping)
    try:
        name = wanted.group(topic) if transactional else ""
        sender = None if dry_run else ReplayProducer(config, name, open_tracing(tracing))
        for batch in reader.batches(_BATCH if rate is None else max(1, min(_BATCH, int(rate)))):
            one.report.stopped = is_stopping()
            if one.report.stopped:
                break
            if sender is None:
                one.count(batch)
            else:
                pace.pause(one.send(batch, sender))
    finally:
        reader.close()
    return one.report


class _Replay:
    """A running replay: the topics it may write to, and its counts so far."""

    def __init__(
        self, config: KafkaConfig, reader: Reader, topic: str, wanted: Filter, allowed: tuple[str, ...],
        max_replays: int,
    ) -> None:  # fmt: skip
        self.report = ReplayReport()
        self.earlier: OtherReplays | None = None
        self._reader = reader
        self._filter, self._max_replays, self._folder = wanted, max_replays, config.dlq_spill_folder
        self._config = config
        self._homes = (config.source_topic(topic), *allowed)

    def count(self, batch: list[Any]) -> None:
        """Count what a replay of *batch* would send."""
        for letter in read_letters(batch, self._config):
            if not self._is_wanted(letter):
                continue
            try:
                outgoing_letter(letter, self._homes, self._folder)
            except SourceError as error:
                self.report.refused += 1
                self.report.refusal = self.report.refusal or str(error)
            else:
                self._note([letter])

    def send(self, batch: list[Any], sender: ReplayProducer) -> int:
        """Send the wanted letters of *batch* up to the first that may not be sent back; return how many were sent."""
        outgoing: list[OutgoingLetter] = []
        for at, letter in enumerate(read_letters(batch, self._config)):
            if not self._is_wanted(letter):
                continue
            try:
                outgoing.append(outgoing_letter(letter, self._homes, self._folder))
            except SourceError:
                self._send(outgoing, batch[:at], sender)
                raise
        self._send(outgoing, batch, sender)
        return len(outgoing)

    def _send(self, outgoing: list[OutgoingLetter], batch: list[Any], sender: ReplayProducer) -> None:
        sender.send(outgoing, self._reader, batch)
        self._note([each.letter for each in outgoing])

    def _is_wanted(self, letter: DeadLetter) -> bool:
        if self._reader.was_sent(letter):
            return False
        self.report.seen += 1
        if not self._filter.picks(letter):
            self.report.left += 1
            return False
        too_often = letter.replays >= self._max_replays
        self.report.too_often += too_often
        return not too_often

    def _note(self, letters: list[DeadLetter]) -> None:
        self.report.replayed += len(letters)
        for letter in letters:
            self.report.by_disposition[letter.disposition] += 1
            self.report.by_exception[letter.exception] += 1
            self.report.sent_before += self.earlier is not None and self.earlier.sent(letter)
