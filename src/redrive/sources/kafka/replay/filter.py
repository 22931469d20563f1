"""
Filters over the dead letters of a topic.

Owns a dead letter as its headers describe it, and the filter that picks some of them; an empty filter picks
all. The consumer group of a replay is derived from its filter, so that the same replay finds its progress.
Knows no Kafka client.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from redrive.sources.kafka.dead_letters.dialects import OURS, read_account
from redrive.sources.kafka.dead_letters.headers import NAMESPACE, replayed, sent_back, split
from redrive.sources.kafka.records.dead_letter import MessageParts
from redrive.sources.kafka.records.messages import headers_of, key_text

if TYPE_CHECKING:
    from redrive.sources.kafka.records.dead_letter import DeadLetterCodec, Header

GROUP_OF_REPLAYS = "redrive-replay-{topic}-"  # followed by a hash of the filter


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record of a dead-letter topic: where it stands, what it carries, and what it says of itself."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int  # ms
    home: str  # the topic it came from
    home_partition: int  # its partition there, -1 if unknown
    reason: str
    attempt: int | None
    disposition: str
    exception: str
    origin: str  # topic/partition/offset@group
    replays: int

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions on a dead letter; None means any."""

    disposition: str | None = None
    exception: str | None = None
    key: str | None = None  # as `key_text` writes it
    header: tuple[str, str] | None = None  # name and value of one of its own headers
    since: int | None = None  # ms, when it became a dead letter
    until: int | None = None  # ms
    partition: int | None = None
    first: int | None = None  # offset, included
    last: int | None = None  # offset, included

    def picks(self, letter: DeadLetter) -> bool:
        """Whether *letter* meets all conditions."""
        return (
            self.disposition in {None, letter.disposition}
            and self.exception in {None, letter.exception, letter.exception.rpartition(".")[2]}
            and (self.key is None or (letter.key is not None and key_text(letter.key) == self.key))
            and (self.header is None or (self.header[0], self.header[1].encode()) in letter.headers)
            and self.partition in {None, letter.partition}
            and _within(letter.timestamp, self.since, self.until)
            and _within(letter.offset, self.first, self.last)
        )

    def group(self, topic: str) -> str:
        """Return the consumer group that keeps the progress of a replay with this filter."""
        return GROUP_OF_REPLAYS.format(topic=topic) + sha256(msgspec.json.encode(asdict(self))).hexdigest()[:12]

    @property
    def text(self) -> str:
        """The conditions as JSON."""
        return msgspec.json.encode({name: asked for name, asked in asdict(self).items() if asked is not None}).decode()

    @classmethod
    def read(cls, text: str) -> Filter | None:
        """Return the filter that *text* describes; None if it describes none."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError:
            return None


def read_letter(message: Any, codec: DeadLetterCodec) -> DeadLetter:
    """Return *message*, as the client gives it, as a dead letter; headers that are missing read as empty."""
    key, value, listed = codec.decode(MessageParts(message.key(), message.value(), list(headers_of(message))))
    headers = tuple(listed)
    _, ours = split(headers)
    account = read_account(headers)
    return DeadLetter(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        key=key,
        value=value,
        headers=headers,
        timestamp=message.timestamp()[1],
        home=account.topic,
        home_partition=-1 if account.partition is None else account.partition,
        reason=account.message,
        attempt=account.attempt,
        disposition=account.disposition,
        exception=account.error_type,
        origin=ours.get(f"{NAMESPACE}id", b"").decode("utf-8", "replace") or account.origin.removeprefix("kafka:"),
        replays=sent_back(ours),
    )


def headers_home(letter: DeadLetter) -> list[Header]:
    """Return the headers to send *letter* back with: those of its record, in every header dialect."""
    account = read_account(letter.headers)
    return replayed(letter.headers if account.dialect == OURS.name else account.own)


def _within(value: int, low: int | None, high: int | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)
