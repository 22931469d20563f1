"""
Make untrusted text safe to print.

Owns the one function that every error, key, name and payload passes through on its way to a
terminal: escape sequences, control and bidirectional characters, lone surrogates become visible
escapes. What is printed can then neither move the cursor nor pretend to be something else.
"""

from __future__ import annotations

import re
from unicodedata import category

_KEPT = "\n\t"
# Everything that is not printable by Unicode's categories (Cc, Cf, Cs, Co, Cn, Zl, Zp), found in one pass.
_SUSPECT = re.compile(r"[^\x20-\x7e]")


def plain(text: object, *, lines: bool = False, limit: int | None = None) -> str:
    r"""
    Return *text* with everything unprintable written out, such as `\x1b`.

    *lines* keeps line breaks and tabs; *limit* cuts to so many characters, and says so.
    """
    whole = str(text)
    cut = whole if limit is None or len(whole) <= limit else whole[:limit]
    safe = cut if cut.isprintable() else _SUSPECT.sub(lambda found: _shown(found.group(), lines=lines), cut)
    return safe if len(cut) == len(whole) else f"{safe}… ({len(whole)} characters)"


def escaped_json(text: str) -> str:
    """Return JSON *text* with unprintable characters as escapes; it still means the same."""
    if text.isascii() and "\x7f" not in text and "\r" not in text:
        return text
    return _SUSPECT.sub(lambda found: _json_escape(found.group()), text)


def _shown(char: str, *, lines: bool) -> str:
    if char.isprintable() or (lines and char in _KEPT):
        return char
    if category(char) == "Zs":  # a blank of another width
        return " "
    return _named(ord(char))


def _named(code: int) -> str:
    if code in (0x09, 0x0A, 0x0D):
        return {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}[code]
    if code <= 0xFF:  # noqa: PLR2004
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004


def _json_escape(char: str) -> str:
    if char.isprintable() or char in _KEPT:
        return char
    if char == "\r":  # never inside a JSON string, so only layout
        return " "
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
