r"""
What was typed in another encoding than the system's.

Owns making text of it: bytes that are no UTF-8 reach a program as lone surrogates, which no store and
no JSON can hold. They are written out, such as `\xe9`. Payloads and paths stay as they are: those are bytes.
"""

from __future__ import annotations

import re
from typing import TypeVar

_QUOTED_OR_NOT = re.compile(r'"(?:[^"\\]|\\.)*"?|[^"]+', re.DOTALL)  # as queries quote
_NO_TEXT = re.compile("[\ud800-\udfff]+")
T = TypeVar("T", str, "str | None")


def typed(value: T) -> T:
    r"""Return *value* with each byte that is no text written out, such as `\xe9`; a callback of options."""
    if value is None or value.isascii():
        return value
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half a character, as other systems may hand over
        return value.encode("utf-8", "backslashreplace").decode()


def typed_all(values: list[str] | None) -> list[str] | None:
    """Return *values*, each as `typed` returns it."""
    return None if values is None else [typed(value) for value in values]


def typed_query(query: str) -> str:
    r"""Return *query* as `typed` returns it; in quotes, where a backslash keeps the next character, as `\\xe9`."""
    return _QUOTED_OR_NOT.sub(lambda part: _written_out(part[0]), query) if _NO_TEXT.search(query) else query


def _written_out(part: str) -> str:
    if not part.startswith('"'):
        return typed(part)
    return _NO_TEXT.sub(lambda found: typed(found[0]).replace("\\", "\\\\"), part)
