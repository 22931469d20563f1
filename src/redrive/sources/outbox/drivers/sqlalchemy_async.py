"""SQLAlchemy 2: awaited sessions and connections, over any PostgreSQL driver; needs greenlet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

from redrive.sources.outbox.drivers import unknown
from redrive.sources.outbox.drivers.sqlalchemy_ import Blocking, call_after

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from sqlalchemy import Connection

    from redrive.sources.outbox.statements import Statement


def driver(connection: object) -> Awaited:
    """Return the driver of a session or connection; a scoped session stands for its current one."""
    if isinstance(connection, async_scoped_session):
        connection = connection.registry()
    if isinstance(connection, AsyncSession | AsyncConnection):
        return Awaited(connection)
    raise unknown(connection)


class Awaited:
    """An AsyncSession or an AsyncConnection."""

    blocks = False

    def __init__(self, session: AsyncSession | AsyncConnection) -> None:
        self._session = session

    async def fetch(self, sql: Statement, values: Sequence[Any]) -> Sequence[Any]:
        """Run *sql*; what the session has not flushed yet stays so."""
        session = self._session
        connection = session if isinstance(session, AsyncConnection) else await session.connection()
        return await connection.run_sync(_fetch, sql, values)

    def block(self) -> AbstractAsyncContextManager[Any]:
        """Open a transaction, or a savepoint in the one that is open."""
        return self._session.begin_nested() if self._session.in_transaction() else self._session.begin()

    def after_commit(self, call: Callable[[], None]) -> bool:
        """Call it after the commit of an AsyncSession; an AsyncConnection has no hook for its commits."""
        if isinstance(self._session, AsyncConnection):
            return False
        call_after(self._session.sync_session, call)
        return True


def _fetch(connection: Connection, sql: Statement, values: Sequence[Any]) -> Sequence[Any]:
    return Blocking(connection).fetch(sql, values)
