"""
Messages as the client hands them over.

Owns the odd corners of reading one. Knows no order and no tracker.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from redrive.sources.kafka.record import Record

if TYPE_CHECKING:
    from redrive.sources.kafka.record import Assignment

_log = logging.getLogger("redrive.kafka")


def record_of(message: Any, assignment: Assignment, offset: int) -> Record:
    """Return *message*, which stands at *offset*, as a record of *assignment*."""
    key, value, headers = message.key(), message.value(), headers_of(message)
    size = (len(key) if key else 0) + (len(value) if value else 0)
    if headers:
        size += bytes_of(headers)
    kind, timestamp = message.timestamp()
    return Record(assignment, offset, key, value, headers, timestamp, kind, size)


def headers_of(message: Any) -> Any:
    """Return the headers; those whose names are no text cannot be had, and must not stop the consumer."""
    try:
        return message.headers() or ()
    except (UnicodeDecodeError, SystemError):
        _log.warning("the headers of %s[%s]@%s have names that are no text and are left out",
                     message.topic(), message.partition(), message.offset())  # fmt: skip
        return ()


def key_text(key: bytes) -> str:
    """Return *key* as text that every store and every terminal takes: bytes that are no text as hex escapes."""
    return key.decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def bytes_of(headers: list[tuple[str, bytes | None]]) -> int:
    """Return how many bytes *headers* hold."""
    return sum(len(name) + len(content or b"") for name, content in headers)
