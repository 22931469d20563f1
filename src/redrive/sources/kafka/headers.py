"""
What a dead letter says of itself.

Owns the headers of records in a dead-letter topic. The record's own stay as they are and
come first; ours come last, so that whoever looks for the last one of a name finds ours.
A record that was a dead letter before carries one set of ours, never two: what it said then
becomes a line of its history. Knows no Kafka client and no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from redrive.sources.kafka.record import TIMESTAMP_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redrive.sources.kafka.events import CompletionEvent
    from redrive.sources.kafka.record import Record

Header = tuple[str, bytes | None]
NAMESPACE = "x-redrive-"
PLAIN = ("x-error-reason", "x-retry-attempt", "source-topic", "partition", "offset", "epoch")
REASON_LIMIT = 1024  # bytes
HISTORY_KEPT = 10
_MARK = f"{NAMESPACE}schema"
_SCHEMA = b"1"
_ID, _GROUP = f"{NAMESPACE}id", f"{NAMESPACE}group"
_DISPOSITION, _EXCEPTION = f"{NAMESPACE}disposition", f"{NAMESPACE}exception"
_FIRST_FAILED_AT, _FAILED_AT = f"{NAMESPACE}first-failed-at", f"{NAMESPACE}failed-at"
_TIMESTAMP, _TIMESTAMP_TYPE = f"{NAMESPACE}timestamp", f"{NAMESPACE}timestamp-type"
_KEPT = (f"{NAMESPACE}replays",)  # survives from one dead letter to the next
_REMEMBERED = {  # what a line of history says, and the header it says it from
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
    own, before = split(record.headers)
    ours: dict[str, Any] = {
        "x-error-reason": cut(event.error or "", REASON_LIMIT),
        "x-retry-attempt": event.attempt,
        "source-topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "epoch": record.epoch,
        _ID: identity(record, group),
        _DISPOSITION: event.disposition,
        _EXCEPTION: "" if failure is None else failure.error_type,
        _GROUP: group,
        _FIRST_FAILED_AT: first_failed_at,
        _FAILED_AT: failed_at,
        _TIMESTAMP: record.timestamp,
        _TIMESTAMP_TYPE: TIMESTAMP_TYPES.get(record.timestamp_type, "none"),
        **{name: before[name].decode("utf-8", "replace") for name in _KEPT if name in before},
        **_history(before),
        _MARK: _SCHEMA.decode(),
    }
    return [*own, *((name, str(value).encode()) for name, value in ours.items())]


def replayed(headers: Iterable[Header]) -> list[Header]:
    """Return the headers of a dead letter that goes home: its own, its history and how often it was sent back."""
    own, before = split(headers)
    name = f"{NAMESPACE}replays"
    sent = before.get(name, b"0")
    count = int(sent) + 1 if sent.isdigit() else 1
    ours = {**_history(before), name: str(count)}
    return [*own, *((each, text.encode()) for each, text in ours.items())]


def identity(record: Record, group: str) -> str:
    """Return what makes two copies of one dead letter the same: source, place and group."""
    return f"{record.topic}/{record.partition}/{record.offset}@{group}"


def split(headers: Iterable[Header]) -> tuple[list[Header], dict[str, bytes]]:
    """
    Return the headers that are not ours, in order, and ours by name.

    The six plain names are common words: they are ours only where our mark says that we were
    here, and then only the last of each.
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
    """Return *text* in at most *limit* bytes, and say so if something is missing."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode()
    return data[: limit - 3].decode("utf-8", "ignore") + "…"


def _history(before: Mapping[str, bytes]) -> dict[str, str]:
    name = f"{NAMESPACE}history"
    if _MARK not in before:  # it was replayed, or never was a dead letter
        return {name: before[name].decode("utf-8", "replace")} if name in before else {}
    line = {word: before[header].decode("utf-8", "replace") for word, header in _REMEMBERED.items() if header in before}
    kept = [line, *_lines(before.get(name, b"[]"))][:HISTORY_KEPT]
    return {name: msgspec.json.encode(kept).decode()}


def _lines(text: bytes) -> list[dict[str, str]]:
    try:
        return msgspec.json.decode(text, type=list[dict[str, str]])
    except (msgspec.DecodeError, ValueError, RecursionError):  # somebody else wrote it
        return []
