"""
Text that PostgreSQL cannot hold, or not in an index.

Owns the escapes. Its text knows neither NUL nor lone surrogates, and its indexes know no long
values, but no content may block a letter. A long name is kept by its beginning and its digest;
what it stands for is kept once, in a table of its own (`names`). A row that has such text says so
(`odd`), and only then is anything read back. Every value that a column can hold is readable. Knows no column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, overload

MARK = "\x1a"  # the control character "substitute"; only `name` writes an L after it
_ODD = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a(?:(\x1a)|([0-9a-f]{4})|(L[0-9a-f]{64})\\Z)")  # twice: as it was written once for itself
_DIGEST = re.compile(r"(?:\x1a|\\u001a)(L[0-9a-f]{64})")  # as it stands in text, and in text that is JSON
LONG = 600  # bytes: three names of this length still fit into one entry of an index
_BEGINNING = 100  # characters of a long name that are kept in place
SHORT = LONG // 4  # characters that fit without being a long name, in any script

Whole = Mapping[str, str]  # what long names stand for, escaped, by their digest
NONE: Whole = {}


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
    return f"{MARK}{ord(found[0]):04x}"


@overload
def name(text: str, noted: dict[str, str] | None = None) -> str: ...
@overload
def name(text: None, noted: dict[str, str] | None = None) -> None: ...
def name(text: str | None, noted: dict[str, str] | None = None) -> str | None:
    """Return *text* as an index can hold it; a long one is *noted*: the caller must keep it whole, too."""
    escaped = escape(text)
    if escaped is None or len(escaped) <= SHORT or len(escaped.encode()) <= LONG:
        return escaped
    digest = f"L{sha256(escaped.encode()).hexdigest()}"
    if noted is not None:
        noted[digest] = escaped
    return f"{_beginning(escaped)}{MARK}{digest}"


def _beginning(escaped: str) -> str:
    """Return the first characters of escaped text, no escape cut in two."""
    cut = escaped[:_BEGINNING]
    return cut if MARK not in cut[-5:] else cut[: cut.index(MARK, len(cut) - 5)]


def digests(rows: Iterable[Iterable[object]]) -> set[str]:
    """Return the digests of all long names in *rows*."""
    texts = (value for row in rows for value in row if isinstance(value, str))
    return {digest for text in texts if MARK in text or "\\u001a" in text for digest in _DIGEST.findall(text)}


def unescape(text: str, whole: Whole = NONE) -> str:
    """Return what was escaped; of a long name that is not in *whole* what is there: its beginning and its digest."""
    if MARK not in text:
        return text
    for found in _ESCAPED.finditer(text):  # from the left: what looks like a digest may be text behind an escape
        text = whole.get(found[3], text)
    return _ESCAPED.sub(_show, text)


def _show(found: re.Match[str]) -> str:
    if found[3]:
        return found[0]
    return MARK if found[1] else chr(int(found[2], 16))


def unescape_all(value: Any, whole: Whole = NONE) -> Any:
    """Return *value*, plain JSON, with every text in it as it was."""
    match value:
        case str():
            return unescape(value, whole)
        case list() | tuple():
            return [unescape_all(each, whole) for each in value]
        case dict():
            return {key: unescape_all(each, whole) for key, each in value.items()}
    return value
