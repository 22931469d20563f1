"""
How often a consumer started at the same offset.

Owns a short note before the offset map in a commit's metadata: how many times a partition was started at this
watermark without a clean end, and whether its first record then ran isolated. A note that cannot be read counts
as no note, like the map. Knows no Kafka client and no partition.
"""

from __future__ import annotations

from typing import NamedTuple

NOTE = 3  # characters
_TOGETHER, _ISOLATED, _END = "b", "q", "."
_MOST = 15  # one hexadecimal digit


class StartNote(NamedTuple):
    """Starts without a clean end, and whether the first record ran isolated in the last of them."""

    starts: int = 0
    isolated: bool = False

    @property
    def text(self) -> str:
        """The note as it is committed."""
        return f"{_ISOLATED if self.isolated else _TOGETHER}{min(self.starts, _MOST):x}{_END}"


def read_note(text: str | None) -> tuple[StartNote, str]:
    """Return the note at the beginning of *text*, and the rest of it."""
    found = text or ""
    if len(found) < NOTE or found[0] not in _TOGETHER + _ISOLATED or found[2] != _END:
        return StartNote(), found
    if found[1] not in "0123456789abcdef":
        return StartNote(), found
    return StartNote(int(found[1], 16), found[0] == _ISOLATED), found[NOTE:]
