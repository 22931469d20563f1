"""psycopg 3: connections that block, and those that are awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from redrive.sources.outbox.drivers import unknown
from redrive.sources.outbox.statements import no_transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from redrive.sources.outbox.statements import Statement


def driver(connection: object) -> Blocking | Awaited:
    """Return the driver of *connection*."""
    if isinstance(connection, psycopg.AsyncConnection):
        return Awaited(connection)
    if isinstance(connection, psycopg.Connection):
        return Blocking(connection)
    raise unknown(connection)


def _check(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    # Without autocommit the statement itself begins the transaction.
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise no_transaction("it is in autocommit mode: open a transaction with connection.transaction()")


class Blocking:
    """A psycopg.Connection."""

    blocks = True

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def fetch(self, sql: Statement, values: Sequence[Any]) -> Sequence[Any]:
        """Run *sql* with a plain cursor, even if the user's connection makes other cursors and rows."""
        _check(self._connection)
        with psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor:
            return cursor.execute(sql.percent.encode(), values).fetchall()

    def block(self) -> AbstractContextManager[Any]:
        """Open a transaction, or a savepoint."""
        return self._connection.transaction()

    def after_commit(self, call: Callable[[], None]) -> bool:  # noqa: ARG002 - psycopg has no such hook
        """Say that it cannot."""
        return False


class Awaited:
    """A psycopg.AsyncConnection."""

    blocks = False

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def fetch(self, sql: Statement, values: Sequence[Any]) -> Sequence[Any]:
        """Run *sql* with a plain cursor, even if the user's connection makes other cursors and rows."""
        _check(self._connection)
        async with psycopg.AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(sql.percent.encode(), values)
            return await cursor.fetchall()

    def block(self) -> AbstractAsyncContextManager[Any]:
        """Open a transaction, or a savepoint."""
        return self._connection.transaction()

    def after_commit(self, call: Callable[[], None]) -> bool:  # noqa: ARG002 - psycopg has no such hook
        """Say that it cannot."""
        return False
