"""
Dead letters out of their topic: looked at, counted, sent home.

Owns the replay of what a choice picks: each goes to the topic it came from, and once the broker has
confirmed it the place is committed under the replay's own group, so that one that was cut short goes
on where it stood. What was replayed too often stays. Blocks; for commands and scripts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redrive.engine.clock import SystemClock
from redrive.errors import SourceError
from redrive.sources.kafka.dead_letters.parked_keys import let_run, parked_keys
from redrive.sources.kafka.records.messages import key_text
from redrive.sources.kafka.replay.filter import Choice, DeadLetter, read_letter
from redrive.sources.kafka.replay.producer import HomeSender, Pace, Parcel, packed
from redrive.sources.kafka.replay.progress import MAX_REPLAYS
from redrive.sources.kafka.replay.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.replay.other_replays import Earlier

_BATCH = 500
_TAIL = 50  # offsets at the end of a partition, where its newest letter most likely is


@dataclass(slots=True)
class Receipt:
    """What a replay did, or would do: the numbers add up to `seen`."""

    seen: int = 0
    replayed: int = 0
    left: int = 0  # not chosen
    parked: int = 0  # replayed too often already
    refused: int = 0  # in a dry run: a replay would stop at the first of them
    sent_before: int = 0  # of the replayed ones, by another replay, as far as that is known
    refusal: str = ""  # why the first of them cannot go home
    by_disposition: Counter[str] = field(default_factory=Counter)  # of the chosen ones
    by_exception: Counter[str] = field(default_factory=Counter)
    stopped: bool = False  # before everything was seen, because somebody asked for it


def browse(config: KafkaConfig, topic: str, choice: Choice) -> Iterator[DeadLetter]:
    """Yield the dead letters of *topic* that *choice* picks, up to where it ends now; commits nothing."""
    reader = Reader(config, topic, f"redrive-browse-{topic}", resume=False, choice=choice)
    try:
        for batch in reader.batches(_BATCH):
            yield from filter(choice.picks, map(read_letter, batch))
    finally:
        reader.close()


def newest(config: KafkaConfig, topic: str, partition: int | None = None) -> DeadLetter | None:
    """Return the dead letter that came to *topic*, or to that *partition* of it, last; None if there is none."""
    last: dict[int, Any] = {}
    for tail in (_TAIL, None):  # what ends a transaction has an offset too, and so has what was aborted
        choice = Choice(partition=partition)
        reader = Reader(config, topic, f"redrive-browse-{topic}", resume=False, choice=choice, tail=tail)
        try:
            last = {message.partition(): message for batch in reader.batches(_BATCH) for message in batch}
            if last.keys() >= reader.partitions:
                break
        finally:
            reader.close()
    return max(map(read_letter, last.values()), key=lambda letter: letter.timestamp, default=None)


def replay(
    config: KafkaConfig,
    topic: str,
    choice: Choice,
    *,
    allowed: tuple[str, ...] = (),
    max_replays: int = MAX_REPLAYS,
    rate: float | None = None,
    dry_run: bool = False,
    transactional: bool = False,
    earlier: Earlier | None = None,
    receipt: Receipt | None = None,
    clock: Clock | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Receipt:
    """
    Send the dead letters of *topic* that *choice* picks back to where they came from.

    They go only to the topic whose dead letters these are, or to an *allowed* one. A second
    replay with the same choice goes on after the first; with a larger *max_replays* it also sends
    what the first left as replayed too often. Raise SourceError if the broker does not confirm
    one, or its home is not allowed; what was confirmed until then is done.
    *transactional* sends and remembers in one transaction: who reads with read_committed sees
    each letter once, also after a crash. Those that an *earlier* replay has sent are counted.
    *receipt*, if given, is the one that is filled in, and so known also if this raises.
    When *is_stopping* says so it ends after the letters in hand.
    """
    reader = Reader(config, topic, choice.group(topic), resume=True, choice=choice, max_replays=max_replays)
    one = _Replay(config, reader, topic, choice, allowed, max_replays)
    one.receipt, one.earlier = receipt or one.receipt, earlier
    pace = Pace(rate, clock or SystemClock(), is_stopping)
    try:
        sender = None if dry_run else HomeSender(config, choice.group(topic) if transactional else "")
        for batch in reader.batches(_BATCH if rate is None else max(1, min(_BATCH, int(rate)))):
            one.receipt.stopped = is_stopping()
            if one.receipt.stopped:
                break
            if sender is None:
                one.count(batch)
            else:
                pace.rest(one.send(batch, sender))
    finally:
        reader.close()
    return one.receipt


class _Replay:
    """One replay under way: what it may send where, and what became of the letters so far."""

    def __init__(
        self, config: KafkaConfig, reader: Reader, topic: str, choice: Choice, allowed: tuple[str, ...],
        max_replays: int,
    ) -> None:  # fmt: skip
        self.receipt = Receipt()
        self.earlier: Earlier | None = None
        self._reader = reader
        self._choice, self._max_replays, self._folder = choice, max_replays, config.dlq_spill_folder
        self._homes = (topic.removesuffix(config.dlq_topic_suffix), *allowed)

    def count(self, batch: list[Any]) -> None:
        """Count what a replay of *batch* would do."""
        for letter in map(read_letter, batch):
            if not self._is_meant(letter):
                continue
            try:
                packed(letter, self._homes, self._folder)
            except SourceError as error:
                self.receipt.refused += 1
                self.receipt.refusal = self.receipt.refusal or str(error)
            else:
                self._note([letter])

    def send(self, batch: list[Any], sender: HomeSender) -> int:
        """Send what is meant of *batch* up to the first that may not go home; return how many were sent."""
        parcels: list[Parcel] = []
        for at, letter in enumerate(map(read_letter, batch)):
            if not self._is_meant(letter):
                continue
            try:
                parcels.append(packed(letter, self._homes, self._folder))
            except SourceError:
                self._send(parcels, batch[:at], sender)
                raise
        self._send(parcels, batch, sender)
        return len(parcels)

    def _send(self, parcels: list[Parcel], batch: list[Any], sender: HomeSender) -> None:
        sender.send(parcels, self._reader, batch)
        self._note([parcel.letter for parcel in parcels])

    def _is_meant(self, letter: DeadLetter) -> bool:
        if self._reader.has_gone(letter):
            return False
        self.receipt.seen += 1
        if not self._choice.picks(letter):
            self.receipt.left += 1
            return False
        too_often = letter.replays >= self._max_replays
        self.receipt.parked += too_often
        return not too_often

    def _note(self, letters: list[DeadLetter]) -> None:
        self.receipt.replayed += len(letters)
        for letter in letters:
            self.receipt.by_disposition[letter.disposition] += 1
            self.receipt.by_exception[letter.exception] += 1
            self.receipt.sent_before += self.earlier is not None and self.earlier.sent(letter)


def release(config: KafkaConfig, topic: str, key: str, *, max_replays: int = MAX_REPLAYS) -> Receipt:
    """
    Send the dead letters of a parked *key* home in their order, then let its records run again.

    Those that arrive meanwhile are parked and sent after; the key is released once none is left.
    Raise SourceError, before anything is sent, if it is not parked or one of its dead letters was
    replayed too often.
    """
    parked = next((each for each in parked_keys(config, topic) if key_text(each) == key), None)
    if parked is None:
        raise SourceError(
            f"{key!r} is not parked behind dead letters of {topic!r}; `redrive kafka dlq parked` lists those that are"
        )
    stuck = replay(config, topic, Choice(key=key), max_replays=max_replays, dry_run=True)
    if stuck.parked:
        raise SourceError(
            f"{key!r} stays parked: {stuck.parked} of its dead letters were replayed {max_replays} times or more; "
            "repair the cause and raise max_replays"
        )
    total = Receipt()
    while (done := replay(config, topic, Choice(key=key), max_replays=max_replays)).replayed:
        total.replayed += done.replayed
    let_run(config, topic, parked)
    total.replayed += replay(config, topic, Choice(key=key), max_replays=max_replays).replayed
    total.seen = total.replayed
    return total
