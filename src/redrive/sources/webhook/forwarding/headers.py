"""
The headers of a forwarded request.

Owns what is said about a letter, which original headers may go along, and that none of them can inject another. Knows
no client and no clock.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from redrive.core.trace_context import carrier_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redrive.core.letter import Letter

Pairs = list[tuple[bytes, bytes]]
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_UNSAFE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # a line end, above all: it would begin a header of its own
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_LONGEST = 8_192  # bytes of one value
# Of this connection, of this body as it was packed, or credentials that were meant for the inbox alone.
_OWN = frozenset({
    "authorization", "connection", "content-encoding", "content-length", "content-type", "cookie", "expect", "host",
    "idempotency-key", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "traceparent", "tracestate", "trailers", "transfer-encoding", "upgrade", "user-agent",
})  # fmt: skip


def headers_of(letter: Letter, *, original: bool, signed: bool, trace: Mapping[str, str] | None = None) -> Pairs:
    """Return the headers of *letter*; those of its request too if *original*. *trace* is the trace to continue."""
    said = {
        "content-type": letter.content_type,
        "user-agent": "redrive",
        "idempotency-key": letter.idempotency_key or letter.id,
        "redrive-id": letter.id,
        "redrive-kind": letter.kind,
        "redrive-attempt": str(letter.attempts),
        "redrive-event-type": str(letter.metadata.get("type", "")),
        **(trace or carrier_of(letter.metadata)),
    }
    ours = [(name.encode(), plain(value)) for name, value in said.items() if value]
    return [*ours, *_original(letter, signed=signed)] if original else ours


def plain(value: str) -> bytes:
    """Return *value* as a header can hold it: what is not printable ASCII is percent-encoded."""
    return quote(value, safe=_PRINTABLE, errors="surrogatepass").strip().encode("ascii")[:_LONGEST]


def _original(letter: Letter, *, signed: bool) -> Pairs:
    """Return the headers that the sender gave, but for those that could mislead the destination."""
    named = [(name.lower(), value) for name, value in letter.headers]
    return [(name.encode("ascii"), value) for name, value in named if _may_pass(name, value, signed=signed)]


def _may_pass(name: str, value: bytes, *, signed: bool) -> bool:
    if not _NAME.fullmatch(name) or _UNSAFE.search(value) or len(value) > _LONGEST:
        return False
    return not (name in _OWN or name.startswith("redrive-") or (signed and name.startswith("webhook-")))
