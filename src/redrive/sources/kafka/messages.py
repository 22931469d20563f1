"""
Messages as the client hands them over.

Owns the odd corners of reading one. Knows no partition and no order.
"""

from __future__ import annotations

import logging
from typing import Any

_log = logging.getLogger("redrive.kafka")


def headers_of(message: Any) -> Any:
    """Return the headers; those whose names are no text cannot be had, and must not stop the consumer."""
    try:
        return message.headers() or ()
    except (UnicodeDecodeError, SystemError):
        _log.warning("the headers of %s[%s]@%s have names that are no text and are left out",
                     message.topic(), message.partition(), message.offset())  # fmt: skip
        return ()


def bytes_of(headers: list[tuple[str, bytes | None]]) -> int:
    """Return how many bytes *headers* hold."""
    return sum(len(name) + len(content or b"") for name, content in headers)
