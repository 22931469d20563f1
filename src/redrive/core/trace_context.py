"""
The trace that a letter belongs to, as text.

Owns the two fields of the W3C trace context as carriers hold them: a letter's metadata, the headers of a request, the
headers of a Kafka record. A field that is malformed is left out, because other programs write them too. Knows no
tracer: `signals.otel` makes spans of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Carrier = dict[str, str]
    HeaderPair = tuple[str, bytes | None]

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
_FIELDS = (TRACEPARENT, TRACESTATE)
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(r"[\x20-\x7e]{1,512}")


def carrier_of(kept: Mapping[str, object]) -> Carrier:
    """Return the trace context in *kept*, such as a letter's metadata; nothing if there is none."""
    parent, state = kept.get(TRACEPARENT), kept.get(TRACESTATE)
    if not (isinstance(parent, str) and _PARENT.fullmatch(parent)):
        return {}
    found = {TRACEPARENT: parent}
    return found | {TRACESTATE: state} if isinstance(state, str) and _STATE.fullmatch(state) else found


def carrier_in(headers: Iterable[HeaderPair]) -> Carrier:
    """Return the trace context in *headers*; the first of each name counts."""
    found: dict[str, object] = {}
    for name, value in headers:
        if value is not None and name.lower() in _FIELDS:
            found.setdefault(name.lower(), value.decode("latin-1"))
    return carrier_of(found)


def continuing(headers: Iterable[HeaderPair], carrier: Carrier) -> list[HeaderPair]:
    """Return *headers* and the trace context of *carrier*; headers that name a trace already are left as they are."""
    pairs = list(headers)
    if not carrier or any(name.lower() == TRACEPARENT for name, _ in pairs):
        return pairs
    return [*pairs, *((name, value.encode("latin-1")) for name, value in carrier.items())]
