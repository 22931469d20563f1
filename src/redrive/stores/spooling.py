"""
What a store behind a spool can say in addition to what every store says.

Owns the names of the port: health checks, metrics and the inbox ask through it. Knows no spool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

import msgspec

if TYPE_CHECKING:
    from redrive.stores.contract import Store


class Spooled(msgspec.Struct, frozen=True, kw_only=True):
    """What a spool holds, and what became of what it held."""

    waiting: int = 0  # letters that are not in their store yet
    refused: int = 0  # letters that their store will never take as they are
    forwarded: int = 0  # letters that their store has taken
    duplicates: int = 0  # letters of which their store had another one
    limit: int = 0

    @property
    def health(self) -> str:
        """One line for people: `ok`, or what is not."""
        found = [f"{self.waiting} waiting"] * bool(self.waiting) + [f"{self.refused} refused"] * bool(self.refused)
        return ", ".join(["degraded", *found]) if found else "ok"


class Spooling(Protocol):
    """A store with a spool in front of it."""

    @property
    def is_away(self) -> bool:
        """Whether the store behind the spool could not be reached when it was last asked."""

    async def spooled(self) -> Spooled:
        """Return what the spool holds."""


def spool_of(store: Store) -> Spooling | None:
    """Return *store* as one with a spool; None if it has none. What wraps it passes the calls on."""
    return cast("Spooling", store) if store.features.spools else None
