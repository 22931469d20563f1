"""
The headers of dead letters.

Owns the headers of records in a dead-letter topic. The record's own headers stay unchanged and come first; ours come
last, so that a reader that takes the last header of a name finds ours. A record that was a dead letter before has one
set of ours, never two: the earlier set becomes an entry of its history. Knows no Kafka client and no clock.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from redrive.sources.kafka.records.record import TIMESTAMP_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redrive.core.letter import Failure
    from redrive.sources.kafka.records.completion import CompletionEvent
    from redrive.sources.kafka.records.dead_letter import Header
    from redrive.sources.kafka.records.record import Record

NAMESPACE = "x-redrive-"
PLAIN = ("x-error-reason", "x-retry-attempt", "source-topic", "partition", "offset", "epoch")
REASON_LIMIT = 1024  # bytes
HISTORY_KEPT = 10
_MARK = f"{NAMESPACE}schema"
_SCHEMA = b"1"
_OURS = (_MARK, _SCHEMA)
_ID, _GROUP = f"{NAMESPACE}id", f"{NAMESPACE}group"
_DISPOSITION, _EXCEPTION = f"{NAMESPACE}disposition", f"{NAMESPACE}exception"
_FIRST_FAILED_AT, _FAILED_AT = f"{NAMESPACE}first-failed-at", f"{NAMESPACE}failed-at"
_TIMESTAMP, _TIMESTAMP_TYPE = f"{NAMESPACE}timestamp", f"{NAMESPACE}timestamp-type"
_REPLAYS = f"{NAMESPACE}replays"
_CAUSES = f"{NAMESPACE}causes"
_TRACEBACK, _TRACEBACK_LIMIT = f"{NAMESPACE}traceback", 8192  # bytes
_MOST_DIGITS = 9  # of a number that we wrote; other programs may write headers too
_KEPT = (_REPLAYS,)  # carried over from one dead letter to the next
_REMEMBERED = {  # the fields of a history entry, and the header of each
    "topic": "source-topic",
    "partition": "partition",
    "offset": "offset",
    "attempt": "x-retry-attempt",
    "disposition": f"{NAMESPACE}disposition",
    "exception": f"{NAMESPACE}exception",
    "at": f"{NAMESPACE}failed-at",
}


def dead_letter_headers(event: CompletionEvent, group: str, *, failed_at: int, first_failed_at: int) -> list[Header]:
    """Return the headers of *event*'s record as a dead letter of *group*; instants are ms since the epoch."""
    record, failure = event.record, event.failure
    owner = record.assignment
    own, before = split(record.headers) if record.headers else ([], {})
    topic, partition, epoch = _from(owner.topic, owner.partition, owner.epoch)
    kind = "" if failure is None else failure.error_type
    attempt, disposition, error, reader, clock = _fate(
        event.attempt, event.disposition or "", kind, group, record.timestamp_type
    )
    return [
        *own,
        ("x-error-reason", _reason(event)),
        attempt,
        topic,
        partition,
        ("offset", b"%d" % record.offset),
        epoch,
        (_ID, identity(record, group).encode()),
        disposition,
        error,
        *_causes(failure),
        reader,
        (_FIRST_FAILED_AT, b"%d" % first_failed_at),
        (_FAILED_AT, b"%d" % failed_at),
        (_TIMESTAMP, b"%d" % record.timestamp),
        clock,
        *(_from_before(before) if before else ()),
        *(((_TRACEBACK, cut(failure.traceback, _TRACEBACK_LIMIT).encode()),) if failure and failure.traceback else ()),
        _OURS,
    ]


def replayed(headers: Iterable[Header]) -> list[Header]:
    """Return the headers of a dead letter that is sent back now: its own, its history and the count of replays."""
    return once_more(homeward(headers))


def homeward(headers: Iterable[Header]) -> list[Header]:
    """Return the headers of a dead letter to send back later: its own, its history and the count of replays so far."""
    own, before = split(headers)
    ours = {**_history(before), **({_REPLAYS: str(sent_back(before))} if sent_back(before) else {})}
    return [*own, *((each, text.encode()) for each, text in ours.items())]


def once_more(headers: list[Header]) -> list[Header]:
    """Return *headers* with one more replay counted."""
    before = sent_back({name: value or b"" for name, value in headers if name == _REPLAYS})
    return [*(pair for pair in headers if pair[0] != _REPLAYS), (_REPLAYS, b"%d" % (before + 1))]


def sent_back(ours: Mapping[str, bytes]) -> int:
    """Return how often a dead letter was replayed, by *ours* of its headers; 0 if that is no number."""
    digits = ours.get(_REPLAYS, b"0")
    return int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else 0


def identity(record: Record, group: str) -> str:
    """Return the identity of a dead letter, the same for all copies: source, position and group."""
    owner = record.assignment
    return f"{owner.topic}/{owner.partition}/{record.offset}@{group}"


def split(headers: Iterable[Header]) -> tuple[list[Header], dict[str, bytes]]:
    """
    Return the headers that are not ours, in order, and ours by name.

    The six plain names are common words: they are ours only in a message with our mark, and then only the last of
    each.
    """
    pairs = list(headers)
    ours = {name: value or b"" for name, value in pairs if name.startswith(NAMESPACE)}
    if _MARK not in ours:
        return [(name, value) for name, value in pairs if not name.startswith(NAMESPACE)], ours
    own: list[Header] = []
    for name, value in reversed(pairs):
        if name in PLAIN and name not in ours:
            ours[name] = value or b""
        elif not name.startswith(NAMESPACE):
            own.append((name, value))
    return own[::-1], ours


def cut(text: str, limit: int) -> str:
    """Return *text* in at most *limit* bytes; an ellipsis marks a cut."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode()
    return data[: limit - 3].decode("utf-8", "ignore") + "…"


# Dead letters that wait for the broker's confirmation share what they have in common.


@lru_cache(maxsize=1024)
def _from(topic: str, partition: int, epoch: int) -> tuple[Header, ...]:
    return _written({"source-topic": topic, "partition": partition, "epoch": epoch})


@lru_cache(maxsize=1024)
def _fate(attempt: int, disposition: str, exception: str, group: str, timestamp_type: int) -> tuple[Header, ...]:
    return _written(
        {
            "x-retry-attempt": attempt,
            _DISPOSITION: disposition,
            _EXCEPTION: exception,
            _GROUP: group,
            _TIMESTAMP_TYPE: TIMESTAMP_TYPES.get(timestamp_type, "none"),
        }
    )


def _written(said: Mapping[str, str | int]) -> tuple[Header, ...]:
    return tuple((name, str(content).encode()) for name, content in said.items())


def _reason(event: CompletionEvent) -> bytes:
    """Return the error's own text, as readers of this header expect it; its type has its own header."""
    failure = event.failure
    text = "" if failure is None else _own_text(failure) or failure.error_type
    data = text.encode("utf-8", "replace")
    return data if len(data) <= REASON_LIMIT else cut(text, REASON_LIMIT).encode()


def _own_text(failure: Failure) -> str:
    return failure.message if failure.own_text is None else failure.own_text


def _causes(failure: Failure | None) -> tuple[Header, ...]:
    """Return the causes of an error, and the members of an exception group."""
    if failure is None or failure.own_text is None:
        return ()
    rest = failure.message.removeprefix(failure.own_text).strip("\n")
    return ((_CAUSES, cut(rest, REASON_LIMIT).encode()),) if rest else ()


def _from_before(before: Mapping[str, bytes]) -> list[Header]:
    """Return what is carried over from one dead letter to the next: the count of replays and the history."""
    kept = [(name, before[name].decode("utf-8", "replace").encode()) for name in _KEPT if name in before]
    return [*kept, *((name, text.encode()) for name, text in _history(before).items())]


def _history(before: Mapping[str, bytes]) -> dict[str, str]:
    name = f"{NAMESPACE}history"
    if _MARK not in before:  # it was replayed, or is no dead letter of ours
        return {name: before[name].decode("utf-8", "replace")} if name in before else {}
    line = {word: before[header].decode("utf-8", "replace") for word, header in _REMEMBERED.items() if header in before}
    kept = [line, *_lines(before.get(name, b"[]"))][:HISTORY_KEPT]
    return {name: msgspec.json.encode(kept).decode()}


def _lines(text: bytes) -> list[dict[str, str]]:
    try:
        return msgspec.json.decode(text, type=list[dict[str, str]])
    except (msgspec.DecodeError, ValueError, RecursionError):  # another program wrote it
        return []
