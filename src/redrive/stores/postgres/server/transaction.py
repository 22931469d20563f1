"""
One transaction: what every operation in it shares.

Owns the transaction's statements, its instant, and the long names in its rows. Knows no
operation: act, edit, declare and the rest are functions that take a Transaction.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.stores.postgres.texts import digests, escape, name, unescape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redrive.stores.postgres.server.long_names import Names


class Now(NamedTuple):
    """What time it is for a test, in microseconds; None: the server's own clock counts."""

    wall: int | None = None
    lease: int | None = None


def new_call() -> int:
    """Return a number that no other call has."""
    return secrets.randbits(62) + 1


async def learned(connection: Any, sql: Mapping[str, str], names: Names, unknown: set[str]) -> dict[str, str]:
    """Return what these long names stand for, without those that the server does not know."""
    found = names.known(unknown)
    missing = sorted(unknown - found.keys())
    if missing:
        read = {row[0]: row[1] for row in await connection.fetch(sql["names"], missing)}
        names.remember(read)
        found |= read
    return found


class Transaction:
    """A transaction under way."""

    def __init__(self, connection: Any, sql: Mapping[str, str], now: Now, names: Names) -> None:
        self.connection, self.sql, self.now, self._names = connection, sql, now, names
        self.noted: dict[str, str] = {}  # long names that are written
        self.whole: dict[str, str] = {}  # long names that were read

    async def rows(self, statement: str, *arguments: Any) -> list[Any]:
        """Run the named statement and return its rows."""
        return await self.fetch(self.sql[statement], *arguments)

    async def row(self, statement: str, *arguments: Any) -> Any:
        """Run the named statement and return its first row, or None."""
        return next(iter(await self.rows(statement, *arguments)), None)

    async def fetch(self, sql: str, *arguments: Any) -> list[Any]:
        """Run *sql*, and learn what the long names in its rows stand for."""
        found = list(await self.connection.fetch(sql, *arguments))
        unknown = digests(found) - self.whole.keys()
        if unknown:
            self.whole |= await learned(self.connection, self.sql, self._names, unknown)
        return found

    def name(self, text: str) -> str:
        """Return *text* as an index can hold it; a long one is kept with this transaction."""
        return name(text, self.noted)

    def text(self, column: str) -> str:
        """Return what *column*, of a row that was read here, stands for."""
        return unescape(column, self.whole)

    async def keep_names(self) -> None:
        """Keep the long names that were written."""
        if fresh := self._names.fresh(self.noted):
            await self.connection.execute(self.sql["keep_names"], fresh, [self.noted[each] for each in fresh])

    async def value(self, statement: str, *arguments: Any) -> Any:
        """Run the named statement and return its first row's first column."""
        return await self.connection.fetchval(self.sql[statement], *arguments)

    async def now_us(self) -> int:
        """Return this moment."""
        return int(await self.value("now") if self.now.wall is None else self.now.wall)

    async def audit(self, by: str, verb: str, target: str, count: int, reason: str) -> None:
        """Write who did what, in the act's own transaction."""
        await self.rows("audit", self.now.wall, escape(by), verb, escape(target), count, escape(reason))
