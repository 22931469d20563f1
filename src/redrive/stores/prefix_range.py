"""
Texts that begin alike, as a range.

Owns where the range ends: after every text that begins so, whatever follows. Text is ordered by its
characters' numbers, which is the order of its bytes in UTF-8. Knows no column.
"""

from __future__ import annotations

_LAST = "\U0010ffff"
_BEFORE_SURROGATES, _AFTER_SURROGATES = "\ud7ff", "\ue000"


def end_of(start: str) -> str | None:
    """Return the first text after all that begin with *start*; None if there is none."""
    kept = start.rstrip(_LAST)
    if not kept:
        return None
    last = kept[-1]
    return kept[:-1] + (_AFTER_SURROGATES if last == _BEFORE_SURROGATES else chr(ord(last) + 1))
