"""
One call to the server: what every operation in it shares.

Owns the transaction's statements, its instant and its number. Knows no operation: act, edit,
declare and the rest are functions that take a Turn.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.stores.postgres.texts import escape

if TYPE_CHECKING:
    from collections.abc import Mapping


class Now(NamedTuple):
    """What time it is, in microseconds; None leaves it to the server, whose clock is the only one."""

    wall: int | None = None
    lease: int | None = None


def new_call() -> int:
    """Return a number that no other call has."""
    return secrets.randbits(62) + 1


class Turn:
    """A transaction under way."""

    def __init__(self, connection: Any, sql: Mapping[str, str], now: Now) -> None:
        self.connection, self.sql, self.now = connection, sql, now

    async def rows(self, name: str, *arguments: Any) -> list[Any]:
        """Run the named statement and return its rows."""
        return list(await self.connection.fetch(self.sql[name], *arguments))

    async def row(self, name: str, *arguments: Any) -> Any:
        """Run the named statement and return its first row, or None."""
        return await self.connection.fetchrow(self.sql[name], *arguments)

    async def value(self, name: str, *arguments: Any) -> Any:
        """Run the named statement and return its first row's first column."""
        return await self.connection.fetchval(self.sql[name], *arguments)

    async def now_us(self) -> int:
        """Return this moment."""
        return int(await self.value("now") if self.now.wall is None else self.now.wall)

    async def audit(self, by: str, verb: str, target: str, count: int, reason: str) -> None:
        """Write who did what, in the act's own transaction."""
        await self.rows("audit", self.now.wall, escape(by), verb, escape(target), count, escape(reason))
