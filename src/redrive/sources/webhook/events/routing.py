"""
Who handles an event.

Owns which types a source wants, and the way from a type to a kind: the kind's own handler, else the source's handler
(or its forward, which is registered as one). Knows no handler but by name.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Container

    from redrive.sources.webhook.source import Source

_OTHER = re.compile(r"[^A-Za-z0-9._:-]")
_LONGEST = 200  # characters of a kind


class Route(msgspec.Struct, frozen=True):
    """The kind of the letter, and whether this application can handle it."""

    kind: str
    handled: bool


def wants(source: Source, event_type: str | None) -> bool:
    """Say whether *source* lists the type; an event without one is wanted by a source that takes all."""
    if "*" in source.events:
        return True
    return event_type is not None and any(fnmatchcase(event_type, glob) for glob in source.events)


@lru_cache(1_024)  # a source has few types, and they come again and again
def kind_of(source: str, event_type: str | None) -> str:
    """Return the kind `source.type`; a slash becomes a dot, and what no kind should hold an underscore."""
    if not event_type:
        return source
    return f"{source}.{_OTHER.sub('_', event_type.replace('/', '.'))}"[:_LONGEST]


def route(source: Source, event_type: str | None, handlers: Container[str], *, elsewhere: bool) -> Route:
    """Return where an event goes; with *elsewhere* another process has the handlers that are not here."""
    kind = kind_of(source.name, event_type)
    if kind in handlers:
        return Route(kind, handled=True)
    if source.name in handlers:
        return Route(source.name, handled=True)
    return Route(kind, handled=elsewhere)
