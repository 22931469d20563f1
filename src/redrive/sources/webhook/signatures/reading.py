"""
Signature headers, read strictly.

Owns how one header, a timestamp, hex and base64 are read: a text that could be read in two ways is refused, so that no
changed bit goes unnoticed. Raises nothing. Knows no provider.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

from redrive.sources.webhook.signatures.verdict import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST = 4_096  # bytes of a header that a signature is read from
_DIGITS = re.compile(rb"[0-9]{1,12}")
_LONGEST_HEX = 128  # digits


def header(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> bytes | Refusal:
    """Return the one header of that *name*; a second one makes it malformed, for a proxy may have read the other."""
    found = None
    for key, value in headers:
        if key == name:
            if found is not None or len(value) > _LONGEST:
                return Refusal.MALFORMED
            found = value
    return Refusal.MISSING if found is None else found


def timestamp(text: bytes | Refusal) -> int | Refusal:
    """Return whole seconds since the epoch, written in digits alone."""
    if isinstance(text, Refusal):
        return text
    return int(text) if _DIGITS.fullmatch(text) else Refusal.MALFORMED


def from_hex(text: bytes) -> bytes | None:
    """Return the bytes that lower-case hex stands for; every provider writes it so."""
    if not 0 < len(text) <= _LONGEST_HEX:
        return None
    try:
        return binascii.unhexlify(text) if text == text.lower() else None
    except binascii.Error:
        return None


def from_base64(text: bytes) -> bytes | None:
    """Return the bytes that canonical, padded base64 stands for."""
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return decoded if decoded and base64.b64encode(decoded) == text else None
