"""
How far replays of one choice have come in one partition.

Owns the note of it in a commit's metadata, which also says what the replay picks. A replay leaves
what was replayed too often, and how often
is too often differs: so there is one offset for each limit, and with a larger one what was left is sent,
and nothing that has gone already. What cannot be read means that the limit was the usual one. Knows no
Kafka client.
"""

from __future__ import annotations

import msgspec

MAX_REPLAYS = 3  # unless something else is asked for
_ROOM = 2000  # bytes of a commit's metadata; a broker takes 4096 unless it is told otherwise


class Reached:
    """Up to where letters have gone, by the number of replays from which on they were left."""

    __slots__ = ("_offsets",)

    def __init__(self, offset: int = 0, note: str | None = None) -> None:
        self._offsets = _read(note or "", offset) or {MAX_REPLAYS: max(0, offset)}

    @property
    def furthest(self) -> int:
        """The offset to commit: nobody has looked at what follows."""
        return max(self._offsets.values())

    @property
    def note(self) -> str:
        """What is committed with it."""
        return msgspec.json.encode(self._offsets).decode()

    def start(self, limit: int) -> int:
        """Return where a replay that leaves what was replayed *limit* times has to begin."""
        return max((at for each, at in self._offsets.items() if each >= limit), default=0)

    def has(self, offset: int, replays: int) -> bool:
        """Whether the letter at *offset*, which had been replayed so often, has gone already."""
        return any(offset < at and replays < limit for limit, at in self._offsets.items())

    def moved(self, limit: int, offset: int) -> None:
        """Note that everything before *offset* has gone, but for what was replayed *limit* times."""
        kept = {each: at for each, at in self._offsets.items() if at and (each > limit or at > offset)}
        self._offsets = {**kept, limit: max(offset, kept.get(limit, 0))}


def with_choice(note: str, choice: str) -> str:
    """Return *note* and, behind it, what the replay picks, unless that is too long for a commit."""
    whole = f"{note}\n{choice}"
    return whole if len(whole.encode()) <= _ROOM else note


def choice_in(note: str | None) -> str:
    """Return what the replay that left *note* picks, as it was written, or nothing."""
    return _plain(note or "").partition("\n")[2]


def _plain(note: str) -> str:
    return note.rstrip("\0")  # the broker of a transaction adds them


def _read(note: str, offset: int) -> dict[int, int]:
    try:
        found = msgspec.json.decode(_plain(note).partition("\n")[0], type=dict[int, int])
    except msgspec.DecodeError:
        return {}
    return found if max(found.values(), default=-1) == offset and min(found.values()) >= 0 else {}
