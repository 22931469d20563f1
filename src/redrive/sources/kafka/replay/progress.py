"""
Progress of the replays of one filter in one partition.

Owns the note in a commit's metadata that holds it, together with the filter. A replay skips letters already
replayed `max_replays` times. That limit differs between runs, so the note has one offset per limit; a run with a
higher limit sends only what earlier runs skipped. A note that cannot be read counts as one of the default limit.
Knows no Kafka client.
"""

from __future__ import annotations

import msgspec

MAX_REPLAYS = 3  # the default
_ROOM = 2000  # bytes of a commit's metadata; offset.metadata.max.bytes is 4096 by default


class Progress:
    """The offset up to which letters were sent, for each limit on replays."""

    __slots__ = ("_offsets",)

    def __init__(self, offset: int = 0, note: str | None = None) -> None:
        self._offsets = _read(note or "", offset) or {MAX_REPLAYS: max(0, offset)}

    @property
    def furthest(self) -> int:
        """The offset to commit: no replay has read beyond it."""
        return max(self._offsets.values())

    @property
    def note(self) -> str:
        """The text that is committed with it."""
        return msgspec.json.encode(self._offsets).decode()

    def start(self, limit: int) -> int:
        """Return the offset at which a replay with this *limit* begins."""
        return max((at for each, at in self._offsets.items() if each >= limit), default=0)

    def has(self, offset: int, replays: int) -> bool:
        """Whether the letter at *offset*, replayed *replays* times until then, was sent."""
        return any(offset < at and replays < limit for limit, at in self._offsets.items())

    def moved(self, limit: int, offset: int) -> None:
        """Note that everything before *offset* was sent, except letters already replayed *limit* times."""
        kept = {each: at for each, at in self._offsets.items() if at and (each > limit or at > offset)}
        self._offsets = {**kept, limit: max(offset, kept.get(limit, 0))}


def with_filter(note: str, text: str) -> str:
    """Return *note* followed by the text of a filter, unless that is too long for a commit."""
    whole = f"{note}\n{text}"
    return whole if len(whole.encode()) <= _ROOM else note


def filter_in(note: str | None) -> str:
    """Return the text of the filter in *note*, or nothing."""
    return _plain(note or "").partition("\n")[2]


def _plain(note: str) -> str:
    return note.rstrip("\0")  # brokers pad metadata that is committed in a transaction


def _read(note: str, offset: int) -> dict[int, int]:
    try:
        found = msgspec.json.decode(_plain(note).partition("\n")[0], type=dict[int, int])
    except msgspec.DecodeError:
        return {}
    return found if max(found.values(), default=-1) == offset and min(found.values()) >= 0 else {}
