"""
What a content type says about a payload.

Owns the one answer to "is it JSON?", for handlers and operators alike. Knows no payload.
"""

from __future__ import annotations

_JSON = ("/json", "+json", "-json")  # application/json, text/json, application/geo+json, text/x-json


def is_json(content_type: str) -> bool:
    """Say whether a payload of this content type is meant to be one JSON value."""
    return media_of(content_type).endswith(_JSON)


def media_of(content_type: str) -> str:
    """Return the media type without its parameters, in small letters."""
    return content_type.partition(";")[0].strip().lower()
