"""
Messages of the Kafka client.

Owns reading them: runs of one partition, headers, keys as text. Knows no tracker.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from redrive.sources.kafka.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.sources.kafka.records.record import Assignment

_log = logging.getLogger("redrive.kafka")
_ESCAPES = re.compile(r"(\\x[0-9a-fA-F]{2}|\\\\|\\)")


def runs(messages: list[Any]) -> Iterator[list[Any]]:
    """Yield *messages* in runs of one partition with growing offsets; an error is a run of its own."""
    start, topic, number, last = 0, None, -1, -1
    for index, message in enumerate(messages):
        error, offset = message.error(), message.offset()
        if error is not None or message.partition() != number or message.topic() != topic or offset <= last:
            if index:
                yield messages[start:index]
            start, topic, number = index, message.topic(), message.partition() if error is None else -1
        last = offset
    if messages:
        yield messages[start:]


def records_of(run: list[Any], assignment: Assignment) -> list[Record]:
    """Return the messages of *run* as records of *assignment*."""
    records = []
    for message in run:
        key, value = message.key(), message.value()
        try:
            headers = message.headers() or ()
        except (UnicodeDecodeError, SystemError):
            headers = headers_of(message)  # tells it
        size = (len(key) if key else 0) + (len(value) if value else 0)
        if headers:
            size += bytes_of(headers)
        kind, timestamp = message.timestamp()
        records.append(Record(assignment, message.offset(), key, value, headers, timestamp, kind, size))
    return records


def headers_of(message: Any) -> Any:
    """Return the headers; none if a name is not UTF-8, which the client cannot read."""
    try:
        return message.headers() or ()
    except (UnicodeDecodeError, SystemError):
        _log.warning("the headers of %s[%s]@%s are left out, because a name is not UTF-8",
                     message.topic(), message.partition(), message.offset())  # fmt: skip
        return ()


def key_text(key: bytes) -> str:
    r"""
    Return *key* as text that every store and every terminal takes; different keys have different texts.

    Bytes that are no text are written as hex escapes (`\xff`), and a backslash as two.
    """
    return key.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def key_of(text: str) -> bytes:
    """Return the key that `key_text` writes as *text*; raise ValueError for a backslash that begins no escape."""
    return b"".join(_unescaped(part) for part in _ESCAPES.split(text) if part)


def _unescaped(part: str) -> bytes:
    if not part.startswith("\\"):
        return part.encode("utf-8", "surrogateescape")  # as the shell handed it over
    if part == "\\\\":
        return b"\\"
    if part == "\\":
        raise ValueError("a backslash begins an escape such as \\xff; write it twice to mean itself")
    return bytes.fromhex(part[2:])


def bytes_of(headers: list[tuple[str, bytes | None]]) -> int:
    """Return how many bytes *headers* hold."""
    return sum(len(name) + len(content or b"") for name, content in headers)
