"""
A sample event of each preset, signed as its provider signs.

Owns the samples, for `redrive inbox send` and for tests. Their ids are the caller's. Knows no client and no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

import msgspec

from redrive.sources.webhook.checking import scheme_of
from redrive.sources.webhook.signatures import providers, standard, twilio

if TYPE_CHECKING:
    from redrive.sources.webhook.source import Source

_JSON = (b"content-type", b"application/json")
_FORM = (b"content-type", twilio.FORM)
Pairs = tuple[tuple[bytes, bytes], ...]


class Sample(NamedTuple):
    """What is sent: a body and its headers."""

    body: bytes
    headers: Pairs


def sample(source: Source, key: bytes | None, at: int, event_id: str) -> Sample:
    """Return an event of *source*, signed by *key*, if there is one, at *at* (seconds since the epoch)."""
    body, headers = _unsigned(source, event_id)
    return Sample(body, (*headers, *_signature(source, key, at, event_id, body)) if key is not None else headers)


def _unsigned(source: Source, event_id: str) -> tuple[bytes, Pairs]:
    name = event_id.encode()
    match source.preset:
        case "stripe":
            value = {"id": event_id, "object": "event", "type": "invoice.paid", "data": {"object": {"id": "in_1"}}}
        case "github":
            return _json({"zen": "Keep it logically awesome."}), (
                _JSON,
                (b"x-github-event", b"ping"),
                (b"x-github-delivery", name),
            )
        case "slack":
            value = {"type": "event_callback", "event_id": event_id, "event": {"type": "app_mention", "text": "hello"}}
        case "shopify":
            headers = (_JSON, (b"x-shopify-topic", b"orders/create"), (b"x-shopify-webhook-id", name))
            return _json({"id": 820982911946154508, "email": "jon@example.com"}), headers
        case "twilio":
            form = urlencode({"MessageSid": "SM1", "From": "+14155550100", "Body": "hello"})
            return form.encode(), (_FORM, (b"i-twilio-idempotency-token", name))
        case "plain":
            value = {"idempotency_key": event_id, "event_type": "order.paid", "payload": {"order": 1}}
        case "hmac":
            id_header = (source.id_header or "Idempotency-Key").lower().encode()
            return _json({source.type_field or "type": "order.paid"}), (_JSON, (id_header, name))
        case _:
            value = {"type": "order.paid", "data": {"order": 1}}
    return _json(value), (_JSON,)


def _signature(source: Source, key: bytes, at: int, event_id: str, body: bytes) -> Pairs:
    match source.preset:
        case "standard" | "plain":
            return standard.sign(key, event_id, at, body)
        case "stripe":
            return providers.sign_stripe(key, at, body)
        case "twilio":
            return twilio.sign(key, source.public_url or "", body)
    return scheme_of(source).sign(key, at, body)


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)
