"""
What makes two failures the same.

Owns fingerprint v1: the error's type, the places in the user's code it came through,
and its message with the changing parts replaced. Old letters keep the version they
were given. Linear in its input, which it cuts first.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec
import re2

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = "v1"
_MESSAGE_LIMIT = 1_000  # characters of a message that are compared
_TYPE_LIMIT = 200
_FRAMES = 10  # the innermost ones
_LONG_HEX = 8  # a word of hexadecimal digits this long is one
_LONG_WORD = 12  # a word with digits this long is an id, a shorter one a name such as sha256

# No groups: RE2 is four times as fast without them, and what was found says itself what it is.
_CHANGING = re2.compile(
    r"\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"<>]+"  # a URL
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"  # an e-mail address
    r"|\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"  # a UUID
    r"|\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\b"  # a time
    r"|\"[^\"\n]*\"|'[^'\n]*'|`[^`\n]*`"  # a quoted text
    r"|(?:\b[a-zA-Z]:)?(?:[/\\][\w.@%+~-]+){2,}[/\\]?"  # a path
    r"|\b0[xX][0-9a-fA-F]+\b|\b[0-9a-fA-F]{8,}\b"  # hexadecimal digits
    r"|\b\d+(?:[.,:]\d+)*\b"  # a number, an address
    r"|\w*\d\w*"  # a word with digits
    r"|\w+'\w+"  # don't and won't, whose quotes open nothing
)
_HEX = frozenset("0123456789abcdefABCDEF")
_NUMBER = frozenset("0123456789.,:")
_UUID = (36, 4)  # characters, hyphens


class Fingerprint(msgspec.Struct, frozen=True):
    """What a failure has in common with others, and why."""

    id: str  # 16 hexadecimal digits and "-v1": people type its beginning
    template: str  # the message with its changing parts replaced
    explanation: str


def fingerprint(error_type: str, frames: Sequence[str], message: str) -> Fingerprint:
    """Return the fingerprint of a failure; the same type, places and kind of message give the same id."""
    return _fingerprint(error_type[:_TYPE_LIMIT], _places(frames), message[:_MESSAGE_LIMIT])


@lru_cache(maxsize=512)  # a dependency that is down says the same thing a thousand times
def _fingerprint(error_type: str, places: tuple[str, ...], message: str) -> Fingerprint:
    title = template(message)
    parts = "\0".join((VERSION, error_type, *places, title))
    digest = blake2b(parts.encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()
    route = " > ".join(places) or "no known place"
    return Fingerprint(f"{digest}-{VERSION}", title, f"{VERSION}: {error_type} at {route}, saying {title!r}")


def template(message: str) -> str:
    """Return *message*, cut, with numbers, ids, texts, addresses, paths and times replaced by their kind."""
    fit = message[:_MESSAGE_LIMIT].encode("utf-8", "replace").decode()  # RE2 takes no lone surrogates
    return str(_CHANGING.sub(lambda match: _kind(match.group()), fit))


def _kind(found: str) -> str:
    """Return what stands for *found*, asked in the order in which the pattern looks."""
    if "://" in found:
        return "<url>"
    if found[0] in "\"'`":
        return "<text>"
    if "/" in found or "\\" in found:
        return "<path>"
    if "@" in found:
        return "<email>"
    return found if "'" in found else _digits(found)


def _digits(found: str) -> str:
    if (len(found), found.count("-")) == _UUID:
        return "<uuid>"
    if "-" in found:
        return "<time>"
    if _NUMBER.issuperset(found):
        return "<n>"
    if found[:2] in ("0x", "0X") or (len(found) >= _LONG_HEX and _HEX.issuperset(found)):
        return "<hex>"
    return _word(found)


def _word(found: str) -> str:
    if len(found) >= _LONG_WORD:
        return "<id>"
    return "".join("<n>" if is_digit else "".join(run) for is_digit, run in groupby(found, str.isdecimal))


def _places(frames: Sequence[str]) -> tuple[str, ...]:
    """Return each frame once, so that the depth of a recursion makes no difference."""
    named = (frame[:_TYPE_LIMIT].replace(".<locals>", "") for frame in frames[-5 * _FRAMES :])
    return tuple(dict.fromkeys(named))[-_FRAMES:]
