"""
The header dialects of dead letters.

Owns how the known producers of dead letters describe a failure in headers: our own consumer, Spring, Kafka Connect,
Kafka Streams, the broker's share groups (KIP-1191) and consumers that write plain names. Of a repeated name the last
header counts. A header that is missing or unreadable is absent, never an error. Knows no Kafka client.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from redrive.sources.kafka.dead_letters.headers import NAMESPACE, PLAIN, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redrive.sources.kafka.records.dead_letter import Header

_INT, _LONG = 4, 8  # bytes of a number in binary form
_MOST_DIGITS = 19  # of a number as text


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The header names of one kind of producer; empty for what it does not write."""

    name: str
    prefixes: tuple[str, ...]  # of the producer's headers, which are not the record's
    topic: str
    partition: str = ""
    offset: str = ""
    error_type: tuple[str, ...] = ()  # the first that is present counts: the cause before its wrapper
    message: tuple[str, ...] = ()
    causes: str = ""
    group: str = ""
    attempt: str = ""
    disposition: str = ""
    timestamp: str = ""
    failed_at: str = ""
    first_failed_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the headers of a dead letter tell: its source, its failure, and its record's own headers."""

    dialect: str
    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    error_type: str = ""
    message: str = ""
    causes: str = ""  # of the error
    group: str = ""
    attempt: int | None = None
    disposition: str = ""
    timestamp: int | None = None  # ms, of the original record
    failed_at: int | None = None  # ms
    first_failed_at: int | None = None  # ms
    own: tuple[Header, ...] = field(default=())

    @property
    def origin(self) -> str:
        """The origin of its letter: `kafka:orders/3@17`, or as much of it as is known."""
        if self.partition is None or self.offset is None:
            return f"kafka:{self.topic}"
        return f"kafka:{self.topic}/{self.partition}@{self.offset}"


OURS = Dialect(
    name="redrive", prefixes=(NAMESPACE,), topic="source-topic", partition="partition", offset="offset",
    error_type=(f"{NAMESPACE}exception",), message=("x-error-reason",), causes=f"{NAMESPACE}causes",
    group=f"{NAMESPACE}group", attempt="x-retry-attempt", disposition=f"{NAMESPACE}disposition",
    timestamp=f"{NAMESPACE}timestamp", failed_at=f"{NAMESPACE}failed-at", first_failed_at=f"{NAMESPACE}first-failed-at",
)  # fmt: skip
_SPRING = "kafka_dlt-"
SPRING = Dialect(
    name="spring", prefixes=(_SPRING, "retry_topic-"), topic=f"{_SPRING}original-topic",
    partition=f"{_SPRING}original-partition", offset=f"{_SPRING}original-offset",
    error_type=(f"{_SPRING}exception-cause-fqcn", f"{_SPRING}exception-fqcn", f"{_SPRING}key-exception-fqcn"),
    message=(f"{_SPRING}exception-message", f"{_SPRING}key-exception-message"),
    group=f"{_SPRING}original-consumer-group", attempt="retry_topic-attempts",
    timestamp=f"{_SPRING}original-timestamp",
)  # fmt: skip
_CONNECT = "__connect.errors."
CONNECT = Dialect(
    name="connect", prefixes=(_CONNECT,), topic=f"{_CONNECT}topic", partition=f"{_CONNECT}partition",
    offset=f"{_CONNECT}offset", error_type=(f"{_CONNECT}exception.class.name",),
    message=(f"{_CONNECT}exception.message",), group=f"{_CONNECT}connector.name", disposition=f"{_CONNECT}stage",
)  # fmt: skip
_STREAMS = "__streams.errors."
STREAMS = Dialect(
    name="streams", prefixes=(_STREAMS,), topic=f"{_STREAMS}topic", partition=f"{_STREAMS}partition",
    offset=f"{_STREAMS}offset", error_type=(f"{_STREAMS}exception",), message=(f"{_STREAMS}message",),
)  # fmt: skip
_SHARE = "__dlq.errors."
SHARE = Dialect(
    name="kip1191", prefixes=(_SHARE,), topic=f"{_SHARE}topic", partition=f"{_SHARE}partition",
    offset=f"{_SHARE}offset", message=(f"{_SHARE}message",), group=f"{_SHARE}group",
    attempt=f"{_SHARE}delivery.count",
)  # fmt: skip
PLAINLY = replace(
    OURS,
    name="plain",
    prefixes=(),
    error_type=(),
    group="",
    disposition="",
    timestamp="",
    failed_at="",
    first_failed_at="",
)
FOREIGN = (SPRING, CONNECT, STREAMS, SHARE, PLAINLY)


def read_account(headers: Iterable[Header], *, home: str = "") -> Account:
    """Return what *headers* tell; a dead letter that names no source topic comes from *home*."""
    pairs = tuple(headers)
    own, ours = split(pairs)
    if PLAIN[2] in ours:
        return _told(OURS, ours, tuple(own), home)
    said = {name: value or b"" for name, value in pairs}
    for dialect in FOREIGN:
        if dialect.topic in said:
            return _told(dialect, said, tuple(pair for pair in pairs if not _is_of(dialect, pair[0])), home)
    return Account(dialect="", topic=home, own=pairs)


def _is_of(dialect: Dialect, name: str) -> bool:
    return name.startswith(dialect.prefixes) if dialect.prefixes else name in PLAIN


def _told(dialect: Dialect, said: Mapping[str, bytes], own: tuple[Header, ...], home: str) -> Account:
    return Account(
        dialect=dialect.name,
        topic=_text(said, dialect.topic) or home,
        partition=_number(said, dialect.partition),
        offset=_number(said, dialect.offset),
        error_type=_first(said, dialect.error_type),
        message=_first(said, dialect.message),
        causes=_text(said, dialect.causes),
        group=_text(said, dialect.group),
        attempt=_number(said, dialect.attempt),
        disposition=_text(said, dialect.disposition),
        timestamp=_number(said, dialect.timestamp),
        failed_at=_number(said, dialect.failed_at),
        first_failed_at=_number(said, dialect.first_failed_at),
        own=own,
    )


def _first(said: Mapping[str, bytes], names: tuple[str, ...]) -> str:
    return next((text for name in names if (text := _text(said, name))), "")


def _text(said: Mapping[str, bytes], name: str) -> str:
    return said.get(name, b"").decode("utf-8", "replace")


def _number(said: Mapping[str, bytes], name: str) -> int | None:
    """Return a number that is written as digits, or in four or eight bytes as Java does."""
    data = said.get(name, b"")
    if data.isdigit() and len(data) <= _MOST_DIGITS:
        return int(data)
    if len(data) in {_INT, _LONG}:
        found = int.from_bytes(data, "big", signed=True)
        return found if found >= 0 else None
    return None
