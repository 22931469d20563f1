"""
Compressed bodies, unpacked within bounds.

Owns gzip and deflate, and the cap that holds while they unpack: no more than the limit is ever in memory. Called only
after the signature holds, which is over the bytes as they arrived. Knows no request.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from redrive.sources.webhook.receiving.answers import TOO_LARGE, Answer, refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

_GZIP = 16 + zlib.MAX_WBITS
_WBITS = {b"gzip": _GZIP, b"x-gzip": _GZIP, b"deflate": zlib.MAX_WBITS}
_UNKNOWN = refusal(415, "the content-encoding must be gzip, deflate or identity")
_BROKEN = refusal(400, "the body does not unpack by its content-encoding")


def unpack(headers: Sequence[tuple[bytes, bytes]], body: bytes, limit: int) -> bytes | Answer:
    """Return the body as its sender wrote it, or the answer to one that does not unpack, or to too much."""
    found = [value for name, value in headers if name == b"content-encoding"]
    if not found:
        return body
    named = b",".join(found).strip().lower()
    if named in (b"", b"identity"):
        return body
    if named not in _WBITS:
        return _UNKNOWN
    unpacker = zlib.decompressobj(_WBITS[named])
    try:
        plain = unpacker.decompress(body, limit + 1)
    except zlib.error:
        return _BROKEN
    if len(plain) > limit:
        return TOO_LARGE
    return plain if unpacker.eof and not unpacker.unused_data else _BROKEN
