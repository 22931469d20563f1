"""
Which letter an event becomes: one, however often and as whatever type it arrives.

Owns the key of an event (`source:id`), which is unique in its queue, and the letter's id that follows from it. A store
keeps one letter of an id, so an event stays one letter even where two of its types have handlers in two queues; and an
event is found by its id without a search. Knows no clock: the caller brings `now`.
"""

from __future__ import annotations

import hashlib

import msgspec

WINDOW = 600  # seconds within which the same bytes without an id are the same event
_LONGEST = 200  # characters of an id that stand in a key; a longer one is hashed


class Identity(msgspec.Struct, frozen=True):
    """The key of an event, its letter's id, and the id it would have had in the window before."""

    key: str
    letter: str
    before: str | None = None


def identify(source: str, event_id: str | None, digest: str, now: float, *, by_body: bool) -> Identity | None:
    """Return who the event is; None if it has no id and its body does not count."""
    if event_id is not None:
        key = key_of(source, event_id)
        return Identity(key, letter_id(key))
    if not by_body:
        return None
    window = int(now // WINDOW)
    keys = [f"{source}:body:{digest}:{each}" for each in (window, window - 1)]
    return Identity(keys[0], letter_id(keys[0]), letter_id(keys[1]))


def key_of(source: str, event_id: str) -> str:
    """Return the idempotency key of an event."""
    if len(event_id) > _LONGEST:
        event_id = "sha256:" + hashlib.sha256(event_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{source}:{event_id}"


def letter_id(key: str) -> str:
    """Return the id of the letter of *key*: a UUID of version 8, made of a hash."""
    text = hashlib.sha256(b"redrive inbox\0" + key.encode("utf-8", "surrogatepass")).hexdigest()
    variant = "89ab"[int(text[16], 16) & 3]  # of RFC 9562
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}"


def digest_of(body: bytes) -> str:
    """Return the hash by which two bodies are compared."""
    return hashlib.sha256(body).hexdigest()
