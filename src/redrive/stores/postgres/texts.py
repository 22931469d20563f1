"""
Text that PostgreSQL cannot hold.

Owns the escapes: its text knows neither NUL nor lone surrogates, and no content may block a
letter. A row that has such text says so (`odd`), and only then is anything read back.
Knows no column.
"""

from __future__ import annotations

import re
from typing import Any, overload

_MARK = "\x1a"  # the control character "substitute"; written twice where it stands for itself
_ODD = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a(\x1a|[0-9a-f]{4})")


def is_odd(text: str) -> bool:
    """Whether *text* must be escaped."""
    return _ODD.search(text) is not None


@overload
def escape(text: str) -> str: ...
@overload
def escape(text: None) -> None: ...
def escape(text: str | None) -> str | None:
    """Return *text* as PostgreSQL can hold it; nearly always that is *text* itself."""
    return text if text is None or not _ODD.search(text) else _ODD.sub(_hide, text)


def _hide(found: re.Match[str]) -> str:
    char = found[0]
    return _MARK * 2 if char == _MARK else f"{_MARK}{ord(char):04x}"


def unescape(text: str) -> str:
    """Return what was escaped."""
    return _ESCAPED.sub(lambda found: _MARK if found[1] == _MARK else chr(int(found[1], 16)), text)


def unescape_all(value: Any) -> Any:
    """Return *value*, plain JSON, with every text in it as it was."""
    match value:
        case str():
            return unescape(value)
        case list() | tuple():
            return [unescape_all(each) for each in value]
        case dict():
            return {name: unescape_all(each) for name, each in value.items()}
    return value
