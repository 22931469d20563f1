"""asyncpg: connections, also those that a pool lends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncpg import Connection
from asyncpg.pool import PoolConnectionProxy

from redrive.sources.outbox.drivers import unknown
from redrive.sources.outbox.statements import no_transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from redrive.sources.outbox.statements import Statement


def driver(connection: object) -> Awaited:
    """Return the driver of *connection*."""
    if isinstance(connection, Connection | PoolConnectionProxy):
        return Awaited(connection)
    raise unknown(connection)


class Awaited:
    """An asyncpg.Connection."""

    blocks = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, sql: Statement, values: Sequence[Any]) -> Sequence[Any]:
        """Run *sql*."""
        if not self._connection.is_in_transaction():
            raise no_transaction("open one with `async with connection.transaction():`")
        rows: Sequence[Any] = await self._connection.fetch(sql.dollar, *values)
        return rows

    def block(self) -> AbstractAsyncContextManager[Any]:
        """Open a transaction, or a savepoint."""
        opened: AbstractAsyncContextManager[Any] = self._connection.transaction()
        return opened

    def after_commit(self, call: Callable[[], None]) -> bool:  # noqa: ARG002 - asyncpg has no such hook
        """Say that it cannot."""
        return False
