"""
How often a consumer began at the same place.

Owns a short note before the offset map in a commit's metadata: how many times a partition was
begun at this watermark without a clean end, and whether its first record then ran alone. Like
the map, what cannot be read means that there is no note. Knows no Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from redrive.sources.kafka.control.partition import Partition

NOTE = 3  # characters
_TOGETHER, _ALONE, _END = "b", "q", "."
_MOST = 15  # one hexadecimal digit


class Boots(NamedTuple):
    """A note: so many starts without a clean end, and whether the first record ran alone in the last of them."""

    starts: int = 0
    alone: bool = False


def read_note(text: str | None) -> tuple[Boots, str]:
    """Return the note at the beginning of *text*, and the rest of it."""
    found = text or ""
    if len(found) < NOTE or found[0] not in _TOGETHER + _ALONE or found[2] != _END:
        return Boots(), found
    if found[1] not in "0123456789abcdef":
        return Boots(), found
    return Boots(int(found[1], 16), found[0] == _ALONE), found[NOTE:]


def note_of(partition: Partition, watermark: int) -> str:
    """Return the note of *partition* at *watermark*: progress starts the count anew, a clean end leaves none."""
    if not partition.noted:
        return ""
    count = partition.boots if watermark == partition.boot_at else 1
    return f"{_ALONE if partition.alone else _TOGETHER}{min(count, _MOST):x}{_END}"
