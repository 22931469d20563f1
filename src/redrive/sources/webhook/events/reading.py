"""
Which event it is: its id, its type, its order, as each provider says it.

Owns where a provider writes these, and the bounds of what is read. Called only after the signature holds. A body that
cannot be read has no id and no type; it is kept all the same. Knows no store and no handler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from redrive.sources.webhook.signatures.twilio import fields_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.sources.webhook.source import Source

_LONGEST = 512  # characters of an id, a type or a key
_level = msgspec.json.Decoder(dict[str, msgspec.Raw])
_scalar = msgspec.json.Decoder(str | int)
_UNREADABLE = (msgspec.DecodeError, RecursionError, ValueError)


class Event(NamedTuple):
    """What a sender says about its event; everything may be absent."""

    id: str | None = None
    type: str | None = None
    key: str | None = None
    sequence: int | None = None


class Malformed(Exception):
    """A body of the preset `plain` that is not of its form; the text says what is wrong and shows nothing of it."""


class _Places(NamedTuple):
    """Where a provider writes id and type: headers win over fields."""

    id_headers: tuple[str, ...] = ()
    id_field: str | None = None
    type_header: str | None = None
    type_fields: tuple[str, ...] = ()


_PLACES = {
    "standard": _Places(("webhook-id", "svix-id"), None, None, ("type",)),
    "stripe": _Places((), "id", None, ("type",)),
    "github": _Places(("x-github-delivery",), None, "x-github-event"),
    "slack": _Places((), "event_id", None, ("event.type", "type")),
    "shopify": _Places(("x-shopify-webhook-id",), None, "x-shopify-topic"),
    "twilio": _Places(("i-twilio-idempotency-token",)),
    "hmac": _Places(("idempotency-key",)),
    "plain": _Places((), "idempotency_key", None, ("event_type",)),
}


def read_event(source: Source, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> Event:
    """Return what is known of the event; raise Malformed for the preset `plain` alone."""
    if source.preset == "plain":
        _refuse_malformed(body)
    places = _PLACES[source.preset]
    id_headers = (source.id_header.lower(),) if source.id_header else places.id_headers
    type_header = source.type_header.lower() if source.type_header else places.type_header
    fields = (source.type_field,) if source.type_field else places.type_fields
    return Event(
        _header(headers, *id_headers) or _text(body, source.id_field or places.id_field),
        _header(headers, type_header)
        or next(filter(None, (_text(body, each) for each in fields)), None)
        or _sort(source, body),
        _text(body, source.key_field),
        _number(body, source.sequence_field),
    )


def payload_of(source: Source, body: bytes) -> bytes:
    """Return what the handler gets: the body as it arrived, or, of the preset `plain`, the JSON below `payload`."""
    return bytes(_members(body)["payload"]) if source.preset == "plain" else body


def challenge_of(source: Source, body: bytes) -> str | None:
    """Return what Slack wants to hear back when an address is set up; None for everything else."""
    if source.preset != "slack" or _text(body, "type") != "url_verification":
        return None
    return _text(body, "challenge")


def value_at(body: bytes, path: str | None) -> Any:
    """Return the JSON below a dotted *path*, still encoded; None if there is none."""
    found: Any = body
    for name in path.split(".") if path else ():
        found = _members(found).get(name)
        if found is None:
            return None
    return found if path else None


def _members(body: Any) -> dict[str, msgspec.Raw]:
    try:
        return _level.decode(body)
    except _UNREADABLE:
        return {}


def _text(body: bytes, path: str | None) -> str | None:
    """Return the text or whole number below *path* as text."""
    found = value_at(body, path)
    if found is None:
        return None
    try:
        return _bounded(str(_scalar.decode(found)))
    except _UNREADABLE:
        return None


def _number(body: bytes, path: str | None) -> int | None:
    text = _text(body, path)
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 19 else None  # noqa: PLR2004 - 64 bits


def _header(headers: Sequence[tuple[bytes, bytes]], *names: str | None) -> str | None:
    wanted = [name.encode("ascii") for name in names if name]
    found = next((value for key, value in headers if key in wanted), None)
    return None if found is None else _bounded(found.decode("utf-8", "backslashreplace"))


def _bounded(text: str) -> str | None:
    return text if 0 < len(text) <= _LONGEST else None


def _sort(source: Source, body: bytes) -> str | None:
    """Return what a form of Twilio is about: it has no type of its own."""
    if source.preset != "twilio":
        return None
    names = {name for name, _ in fields_of(body) or ()}
    return next((sort for name, sort in (("MessageSid", "message"), ("CallSid", "call")) if name in names), None)


def _refuse_malformed(body: bytes) -> None:
    members = _members(body)
    for name in ("idempotency_key", "event_type"):
        if _text(body, name) is None:
            raise Malformed(f"{name} must be text of 1 to {_LONGEST} characters")
    if "payload" not in members:
        raise Malformed("payload is missing")
