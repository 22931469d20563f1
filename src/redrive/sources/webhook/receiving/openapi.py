"""
The OpenAPI document of an inbox.

Owns the shapes of answers as documented, and the paths of both addresses: `senders` is the public one, `operators` the
admin address. Schemas come from msgspec Structs. Knows no request and no store; changes nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from redrive.sources.webhook.receiving.paths import MOUNT
from redrive.stores.spooling import Spooled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.sources.webhook.source import Source

    Fields = dict[str, Any]

Status = Literal["pending", "processing", "completed", "failed", "archived"]
Name = Annotated[str, Meta(min_length=1, max_length=512)]
_REF = "#/components/schemas/{name}"


class KeptEvent(Struct, frozen=True):
    """An event that is kept: new (202), or a duplicate of one that was kept before (200)."""

    id: str
    idempotency_key: str | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET
    created_at: datetime | UnsetType = UNSET


class IgnoredEvent(Struct, frozen=True):
    """An event of a type that its source does not list; it is not kept."""

    status: Literal["ignored"]


class PlainEvent(Struct, frozen=True):
    """An event in the inbox's own form."""

    idempotency_key: Name
    event_type: Name
    payload: Any


class EventStatus(Struct, frozen=True):
    """Where an event stands."""

    id: str
    idempotency_key: str
    status: Status
    attempts: int
    created_at: datetime
    updated_at: datetime


class RefusedRequest(Struct, frozen=True):
    """Why nothing was kept, or shown."""

    error: str


class InboxHealth(Struct, frozen=True):
    """That the process lives, and what waits in its spool: `ok`, or `degraded, 412 waiting`."""

    status: str
    spool: Spooled | UnsetType = UNSET


class InboxReadiness(Struct, frozen=True):
    """Whether the inbox takes events, and why not."""

    ready: bool
    reasons: list[str]


class SourceState(Struct, frozen=True):
    """A source: what it is, what it took, what it refused."""

    name: str
    preset: str
    signed: bool
    secrets: int
    events: list[str]
    forward: str | None
    last_delivery: datetime | None
    results: dict[str, int]
    refusals: dict[str, int]


class SourceStates(Struct, frozen=True):
    """All sources of an inbox."""

    sources: list[SourceState]


_SHAPES = (
    KeptEvent, IgnoredEvent, PlainEvent, EventStatus, RefusedRequest, InboxHealth, InboxReadiness, SourceStates,
)  # fmt: skip
_REFUSED = {
    400: "The request cannot be read.",
    401: "The signature does not hold.",
    408: "The request took too long to arrive.",
    413: "The body is too large, as it arrives or unpacked.",
    415: "The content encoding is not known.",
    429: "The queue is full; Retry-After says when to send again.",
    431: "The headers are too large.",
    503: "The event cannot be kept now; Retry-After says when to send again.",
}


def document(sources: Iterable[Source], version: str) -> Fields:
    """Return the OpenAPI document of an inbox with these sources."""
    _, schemas = msgspec.json.schema_components(_SHAPES, ref_template=_REF)
    paths: Fields = {}
    for source in sources:
        paths |= _paths_of(source)
    return {
        "openapi": "3.1.0",
        "info": {"title": "redrive inbox", "version": version, "summary": "Webhooks in, letters kept."},
        "tags": [
            {"name": "senders", "description": "The public address."},
            {"name": "operators", "description": "The admin address."},
        ],
        "paths": paths | _own_paths(),
        "components": {"schemas": schemas},
    }


def _paths_of(source: Source) -> Fields:
    name = source.name
    key = {"name": "idempotency_key", "in": "query", "required": True, "schema": {"type": "string"}}
    number = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}
    post, find = _post(source), _get(EventStatus, f"Find an event of {name} by its key.", 404, 503)
    show = _get(EventStatus, f"Show an event of {name}.", 404, 503)
    found = {
        f"/{MOUNT}/{name}": {"post": post, "get": find | {"parameters": [key]}},
        f"/{MOUNT}/{name}/{{id}}": {"get": show | {"parameters": [number]}},
    }
    if source.preset == "plain":
        found |= {path.removeprefix(f"/{MOUNT}"): item for path, item in found.items()}
    return found


def _post(source: Source) -> Fields:
    kept = {"anyOf": [_ref(KeptEvent), _ref(IgnoredEvent)]}
    known = _answer("Kept before, or of a type that the source does not list.", kept)
    if source.preset == "slack":
        known["content"] |= {"text/plain": {"schema": {"type": "string"}}}
    new = _answer("Kept, durably, as one letter.", _ref(KeptEvent))
    if source.preset == "twilio":
        xml = {"text/xml": {"schema": {"type": "string"}}}
        known["content"] |= xml
        new["content"] |= xml
    return {
        "tags": ["senders"],
        "summary": f"Send an event of {source.name}.",
        "description": "Unsigned." if source.insecure else f"Signed as {source.preset} signs, over the raw body.",
        "requestBody": {"required": source.preset == "plain", "content": _bodies(source)},
        "responses": {
            "200": known,
            "202": new,
            **{str(status): _answer(why, _ref(RefusedRequest)) for status, why in _REFUSED.items()},
        },
    }


def _bodies(source: Source) -> Fields:
    if source.preset == "plain":
        return {"application/json": {"schema": _ref(PlainEvent)}}
    return {"application/json": {"schema": {}}, "application/octet-stream": {"schema": {"type": "string"}}}


def _own_paths() -> Fields:
    metrics = {"description": "Metrics for Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    return {
        "/health": {"get": _get(InboxHealth, "Say whether the process lives.", 503)},
        "/ready": {"get": _get(InboxReadiness, "Say whether events are taken.") | {"responses": _ready()}},
        "/sources": {"get": _get(SourceStates, "Show the sources.", 503)},
        "/metrics": {"get": _get(None, "Show metrics.", 501, 503, found=metrics)},
        "/openapi.json": {"get": _get(None, "Show this document.", found=_answer("This document.", {}))},
    }


def _ready() -> Fields:
    return {
        "200": _answer("It does.", _ref(InboxReadiness)),
        "503": _answer("It does not, and says why.", _ref(InboxReadiness)),
    }


def _get(shape: type | None, summary: str, *refused: int, found: Fields | None = None) -> Fields:
    said = found or _answer("Found.", _ref(shape) if shape else {})
    others = {str(status): _answer("Not shown, and why.", _ref(RefusedRequest)) for status in refused}
    return {"tags": ["operators"], "summary": summary, "responses": {"200": said, **others}}


def _answer(why: str, schema: Fields) -> Fields:
    return {"description": why, "content": {"application/json": {"schema": schema}}}


def _ref(shape: type) -> Fields:
    return {"$ref": _REF.format(name=shape.__name__)}
