"""
Ids, and how people name a letter.

Owns the one spelling of an id, and what a short id is: the last characters of an id. (The first ones of a UUID v7
are its time, which neighbours share.) Which letter one means is looked up by `desk/look/ids.py`. Knows no store.
"""

from __future__ import annotations

import re

import re2

SHOWN = 8  # characters in tables
_WHOLE = 36  # characters of a UUID
_TAIL = re2.compile(r"[0-9a-fA-F-]{4,35}")
_WRITTEN = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # not re2: its wrapper takes 20 times as long
_BARE = re2.compile(r"[0-9a-fA-F]{32}")  # a UUID without its dashes


def spelled(letter_id: str) -> str:
    """Return *letter_id* as every store writes it: a UUID in small letters, with its dashes; other text as it is."""
    if _WRITTEN.fullmatch(letter_id) is not None:
        return letter_id
    bare = letter_id.lower().removeprefix("urn:uuid:").strip("{}").replace("-", "")
    if _BARE.fullmatch(bare) is None:
        return letter_id
    return f"{bare[:8]}-{bare[8:12]}-{bare[12:16]}-{bare[16:20]}-{bare[20:]}"


def short(letter_id: str) -> str:
    """Return the end of a UUID, by which people tell letters apart; other ids as they are."""
    return letter_id[-SHOWN:] if len(letter_id) == _WHOLE else letter_id


def is_short(text: str) -> bool:
    """Say whether *text* may be the end of an id, and is not a whole one."""
    return _TAIL.fullmatch(text) is not None and _BARE.fullmatch(text) is None


def tail_of(text: str) -> str:
    """Return a short id as ids are written."""
    return text.lower()
