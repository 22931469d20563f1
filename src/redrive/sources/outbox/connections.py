"""
What connections look like to a type checker.

Owns telling apart, by their shape, those that block from those that are awaited, so that the
outbox of each has the right methods without any driver being installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable


class BlockingConnection(Protocol):
    """A psycopg.Connection, a Session or Connection of SQLAlchemy, django.db.connection."""

    def commit(self) -> None:
        """Commit."""


class AwaitedConnection(Protocol):
    """A psycopg.AsyncConnection, an AsyncSession or AsyncConnection of SQLAlchemy."""

    def commit(self) -> Awaitable[None]:
        """Commit."""


class AsyncpgConnection(Protocol):
    """An asyncpg.Connection, also one that a pool lends."""

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""
