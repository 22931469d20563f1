"""
SQLAlchemy 2: blocking sessions and connections, over any PostgreSQL driver.

Owns these, and telling awaited ones apart without importing them: SQLAlchemy's asyncio needs greenlet, which a
program that never awaits need not have.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, event, text
from sqlalchemy.orm import Session, scoped_session

from redrive.errors import SourceError
from redrive.sources.outbox.drivers import unknown
from redrive.sources.outbox.statements import by_name, no_transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from redrive.sources.outbox.face import AwaitedDriver, BlockingDriver
    from redrive.sources.outbox.statements import Statement

_NEWS = "redrive.news"  # where a session remembers whom to call after its commit
_text = lru_cache(text)


_ASYNC = "sqlalchemy.ext.asyncio"


def driver(connection: object) -> BlockingDriver | AwaitedDriver:
    """Return the driver of a session or connection; a scoped session stands for its current one."""
    if any(kind.__module__.startswith(_ASYNC) for kind in type(connection).__mro__):
        awaited: AwaitedDriver = import_module("redrive.sources.outbox.drivers.sqlalchemy_async").driver(connection)
        return awaited
    if isinstance(connection, scoped_session):
        connection = connection.registry()
    if isinstance(connection, Session | Connection):
        return Blocking(connection)
    raise unknown(connection)


def _check(connection: Connection) -> None:
    if connection.dialect.name != "postgresql":
        raise SourceError(
            f"cannot use the outbox on {connection.dialect.name}: its tables are in PostgreSQL; "
            "give a session or connection of that database"
        )
    # Asking for the level would be another round trip; this is where SQLAlchemy keeps what it was told.
    told = connection.get_execution_options().get("isolation_level") or getattr(
        connection.dialect, "_on_connect_isolation_level", None
    )
    if told == "AUTOCOMMIT":
        raise no_transaction("it is in AUTOCOMMIT mode: use another isolation level")


def call_after(session: Session, call: Callable[[], None]) -> None:
    """Call it once the session's outermost transaction has committed."""
    session.info.setdefault(_NEWS, set()).add(call)
    if not event.contains(session, "after_commit", _committed):
        event.listen(session, "after_commit", _committed)


def _committed(session: Session) -> None:
    if session.in_nested_transaction():  # a savepoint: no other connection sees it yet
        return
    for call in session.info.pop(_NEWS, ()):
        call()


class Blocking:
    """A Session or a Connection."""

    blocks = True

    def __init__(self, session: Session | Connection) -> None:
        self._session = session

    def fetch(self, sql: Statement, values: Sequence[Any]) -> Sequence[Any]:
        """Run *sql*; what the session has not flushed yet stays so."""
        connection = self._session if isinstance(self._session, Connection) else self._session.connection()
        _check(connection)
        return connection.execute(_text(sql.colon), by_name(values)).all()

    def block(self) -> AbstractContextManager[Any]:
        """Open a transaction, or a savepoint in the one that is open."""
        return self._session.begin_nested() if self._session.in_transaction() else self._session.begin()

    def after_commit(self, call: Callable[[], None]) -> bool:
        """Call it after the commit of a Session; a Connection has no hook for its commits."""
        if isinstance(self._session, Connection):
            return False
        call_after(self._session, call)
        return True
