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


class Event(msgspec.Struct, frozen=True):
    """What a sender says about its event; everything may be absent."""

    id: str | None = None
    type: str | None = None
    key: str | None = None
    sequence: int | None = None


class Malformed(Exception):
    """A body of the preset `plain` that is not of its form; the text says what is wrong and shows nothing of it."""


class _Places(NamedTuple):
    """Where a sender writes id, type and order: headers win over fields."""

    id_headers: tuple[bytes, ...] = ()
    id_field: str | None = None
    type_headers: tuple[bytes, ...] = ()
    type_fields: tuple[str, ...] = ()
    key_field: str | None = None
    sequence_field: str | None = None


_PLACES = {
    "standard": _Places((b"webhook-id", b"svix-id"), type_fields=("type",)),
    "stripe": _Places((), "id", type_fields=("type",)),
    "github": _Places((b"x-github-delivery",), type_headers=(b"x-github-event",)),
    "slack": _Places((), "event_id", type_fields=("event.type", "type")),
    "shopify": _Places((b"x-shopify-webhook-id",), type_headers=(b"x-shopify-topic",)),
    "twilio": _Places((b"i-twilio-idempotency-token",)),
    "hmac": _Places((b"idempotency-key",)),
    "plain": _Places((), "idempotency_key", type_fields=("event_type",)),
}


def _places_of(source: Source) -> _Places:
    """Return where *source* writes what, with its own options in the place of its preset's."""
    own: dict[str, Any] = {"key_field": source.key_field, "sequence_field": source.sequence_field}
    if source.id_header:
        own["id_headers"] = (source.id_header.lower().encode("ascii"),)
    if source.id_field:
        own["id_field"] = source.id_field
    if source.type_header:
        own["type_headers"] = (source.type_header.lower().encode("ascii"),)
    if source.type_field:
        own["type_fields"] = (source.type_field,)
    return _PLACES[source.preset]._replace(**own)


class EventReader:
    """Reads the events of one source; where they say what is worked out once, not for each of them."""

    def __init__(self, source: Source) -> None:
        self._places = _places_of(source)
        self._is_plain, self._is_twilio = source.preset == "plain", source.preset == "twilio"

    def read(self, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> Event:
        """Return what is known of the event; raise Malformed for the preset `plain` alone."""
        if self._is_plain:
            _refuse_malformed(body)
        places = self._places
        return Event(
            _header(headers, places.id_headers) or _text(body, places.id_field),
            _header(headers, places.type_headers) or self._type_in(body),
            _text(body, places.key_field),
            _number(body, places.sequence_field),
        )

    def _type_in(self, body: bytes) -> str | None:
        for field in self._places.type_fields:
            if found := _text(body, field):
                return found
        return _sort(body) if self._is_twilio else None


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
    if not path:
        return None
    found: Any = body
    for name in path.split("."):
        found = _members(found).get(name)
        if found is None:
            return None
    return found


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


def _header(headers: Sequence[tuple[bytes, bytes]], names: tuple[bytes, ...]) -> str | None:
    """Return the first header of one of *names*."""
    for key, value in headers if names else ():
        if key in names:
            return _bounded(value.decode("utf-8", "backslashreplace"))
    return None


def _bounded(text: str) -> str | None:
    return text if 0 < len(text) <= _LONGEST else None


def _sort(body: bytes) -> str | None:
    """Return what a form of Twilio is about: it has no type of its own."""
    names = {name for name, _ in fields_of(body) or ()}
    return next((sort for name, sort in (("MessageSid", "message"), ("CallSid", "call")) if name in names), None)


def _refuse_malformed(body: bytes) -> None:
    members = _members(body)
    if not members:
        raise Malformed("the body must be a JSON object with idempotency_key, event_type and payload")
    for name in ("idempotency_key", "event_type"):
        if _text(body, name) is None:
            raise Malformed(f"{name} must be text of 1 to {_LONGEST} characters")
    if "payload" not in members:
        raise Malformed("payload is missing")
