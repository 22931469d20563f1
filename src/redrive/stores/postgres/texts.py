"""
Text that PostgreSQL cannot hold, or not in an index.

Owns the escapes. Its text knows neither NUL nor lone surrogates, and its indexes know no long
values, but no content may block a letter. A long name is kept by its beginning and its digest;
what it stands for is kept once, in a table of its own. A row that has such text says so (`odd`),
and only then is anything read back. Knows no column.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, overload

MARK = "\x1a"  # the control character "substitute"; written twice where it stands for itself
_ODD = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a(?:(\x1a)|([0-9a-f]{4})|(L[0-9a-f]{64}))")
LONG = 600  # bytes: three names of this length still fit into one entry of an index
_BEGINNING = 100  # characters of a long name that are kept in place
SHORT = LONG // 4  # characters that are no long name whatever they are

WHOLE: dict[str, str] = {}  # long names that this process has met, by their digest


class UnknownName(Exception):
    """A long name was read that this process has not met yet."""


def is_odd(text: str) -> bool:
    """Whether *text* must be escaped."""
    return _ODD.search(text) is not None


def is_odd_name(text: str) -> bool:
    """Whether *text* must be escaped, or may be too long for a name."""
    return len(text) > SHORT or is_odd(text)


@overload
def escape(text: str) -> str: ...
@overload
def escape(text: None) -> None: ...
def escape(text: str | None) -> str | None:
    """Return *text* as PostgreSQL can hold it; nearly always that is *text* itself."""
    return text if text is None or not _ODD.search(text) else _ODD.sub(_hide, text)


def _hide(found: re.Match[str]) -> str:
    char = found[0]
    return MARK * 2 if char == MARK else f"{MARK}{ord(char):04x}"


@overload
def name(text: str) -> str: ...
@overload
def name(text: None) -> None: ...
def name(text: str | None) -> str | None:
    """Return *text* as an index can hold it; a long one is remembered in WHOLE, and must be kept."""
    held = escape(text)
    if held is None or len(held) <= SHORT or len(held.encode()) <= LONG:
        return held
    digest = f"L{sha256(held.encode()).hexdigest()}"
    WHOLE[digest] = held
    return f"{_beginning(held)}{MARK}{digest}"


def _beginning(held: str) -> str:
    """Return the first characters of escaped text, no escape cut in two."""
    cut = held[:_BEGINNING]
    return cut if MARK not in cut[-5:] else cut[: cut.index(MARK, len(cut) - 5)]


def unescape(text: str) -> str:
    """Return what was escaped; raise UnknownName for a long name that is not in WHOLE."""
    if MARK not in text:
        return text
    found = _ESCAPED.search(text, max(0, len(text) - 66))
    if found is not None and found[3] is not None:
        if found[3] not in WHOLE:
            raise UnknownName(found[3])
        text = WHOLE[found[3]]
    return _ESCAPED.sub(_show, text)


def _show(found: re.Match[str]) -> str:
    return MARK if found[1] else chr(int(found[2], 16))


def unescape_all(value: Any) -> Any:
    """Return *value*, plain JSON, with every text in it as it was."""
    match value:
        case str():
            return unescape(value)
        case list() | tuple():
            return [unescape_all(each) for each in value]
        case dict():
            return {key: unescape_all(each) for key, each in value.items()}
    return value
