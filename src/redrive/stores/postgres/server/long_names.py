"""
Long names that one store has met lately.

Owns what this process remembers of them, by their digest: their texts, so that it does not read them again, and when it
made sure that the store's table has them, so that it does not write them again for an hour. Retention removes a name
that no letter has two hours after that at the earliest. Bounded, and of one store: a name of one database is never
written into another. Knows no statement.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MOST = 2_000_000  # characters, of names that have 150 at least
SURE = 3600.0  # seconds: half of what outbox_forget_names waits


class Names:
    """The long names met last, those used last kept longest."""

    def __init__(self, most: int = _MOST) -> None:
        self._whole: dict[str, str] = {}
        self._kept_at: dict[str, float] = {}  # when the table was seen to have it; of those in _whole alone
        self._size, self._most = 0, most

    def fresh(self, noted: Mapping[str, str]) -> list[str]:
        """Return the digests of *noted* that the table may not have, in one order for every process."""
        if not noted:
            return []
        since = time.monotonic() - SURE
        return sorted(digest for digest in noted if self._kept_at.get(digest, -SURE) <= since)

    def known(self, digests: Iterable[str]) -> dict[str, str]:
        """Return those of *digests* that are remembered."""
        found = {digest: self._whole[digest] for digest in digests if digest in self._whole}
        self.remember(found)
        return found

    def kept(self, noted: Mapping[str, str]) -> None:
        """Remember names that this process has just written, or found written by a call that made sure of it."""
        now = time.monotonic()
        self._kept_at.update((digest, now) for digest in self.fresh(noted))
        self.remember(noted)

    def remember(self, read: Mapping[str, str]) -> None:
        """Remember what these names stand for; the ones used longest ago are forgotten."""
        for digest, whole in read.items():
            self._size += len(whole) - len(self._whole.pop(digest, ""))
            self._whole[digest] = whole
        while self._size > self._most:
            oldest = next(iter(self._whole))
            self._size -= len(self._whole.pop(oldest))
            self._kept_at.pop(oldest, None)
