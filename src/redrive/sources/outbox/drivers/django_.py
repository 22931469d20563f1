"""Django: `django.db.connection`, or one of `django.db.connections`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import transaction

from redrive.errors import SourceError
from redrive.sources.outbox.drivers import unknown
from redrive.sources.outbox.statements import no_transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from redrive.sources.outbox.statements import Statement


def driver(connection: Any) -> Blocking:
    """Return the driver of *connection*."""
    if not hasattr(connection, "in_atomic_block"):
        raise unknown(connection)
    if connection.vendor != "postgresql":
        raise SourceError(
            f"cannot use the outbox on Django's {connection.alias!r} connection: it is {connection.vendor}, and the "
            "outbox's tables are in PostgreSQL; give another one of django.db.connections"
        )
    return Blocking(connection)


class Blocking:
    """A connection of Django's."""

    blocks = True

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def fetch(self, sql: Statement, values: Sequence[Any]) -> Sequence[Any]:
        """Run *sql* in the open `atomic` block."""
        if not self._connection.in_atomic_block and self._connection.get_autocommit():
            raise no_transaction("open one with transaction.atomic()")
        with self._connection.cursor() as cursor:
            cursor.execute(sql.percent, values)
            rows: Sequence[Any] = cursor.fetchall()
        return rows

    def block(self) -> AbstractContextManager[Any]:
        """Open an `atomic` block."""
        opened: AbstractContextManager[Any] = transaction.atomic(using=self._connection.alias)
        return opened

    def after_commit(self, call: Callable[[], None]) -> bool:
        """Call it after the commit; Django itself forgets it if there is none."""
        if not self._connection.in_atomic_block:
            return False
        transaction.on_commit(call, using=self._connection.alias, robust=True)
        return True
