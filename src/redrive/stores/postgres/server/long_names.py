"""
Long names that one store has met lately.

Owns what is remembered of them, by their digest: what stands here is in the store's table, so it is
neither written nor read again. Bounded, and of one store: a name of one database is never written
into another. Knows no statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MOST = 2_000_000  # characters, of names that have 150 at least


class Names:
    """The long names met last, those used last kept longest."""

    def __init__(self, most: int = _MOST) -> None:
        self._whole: dict[str, str] = {}
        self._size, self._most = 0, most

    def fresh(self, noted: Mapping[str, str]) -> list[str]:
        """Return, in one order for everybody, the digests of *noted* that may not be in the table yet."""
        return sorted(noted.keys() - self._whole.keys()) if noted else []

    def known(self, digests: Iterable[str]) -> dict[str, str]:
        """Return those of *digests* that are remembered."""
        found = {digest: self._whole[digest] for digest in digests if digest in self._whole}
        self.remember(found)
        return found

    def remember(self, kept: Mapping[str, str]) -> None:
        """Remember names that the table has; the ones used longest ago are forgotten."""
        for digest, whole in kept.items():
            self._size += len(whole) - len(self._whole.pop(digest, ""))
            self._whole[digest] = whole
        while self._size > self._most:
            oldest = next(iter(self._whole))
            self._size -= len(self._whole.pop(oldest))
