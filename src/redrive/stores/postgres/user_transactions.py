"""
What code outside the store needs to keep letters in a transaction of the user's own.

Owns the public part of this package for such code, which sends statements through a connection and a driver of its own:
their texts, the columns of a draft, names as indexes hold them, what a refusal means, and how workers are woken. The
rest of the package is private. Knows no driver but its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.stores.postgres.putting import refusal_of, row_of
from redrive.stores.postgres.server.connections import Server
from redrive.stores.postgres.server.listening import CHANNEL
from redrive.stores.postgres.sql.statements import statements
from redrive.stores.postgres.texts import name

if TYPE_CHECKING:
    from redrive.core.letter import Draft

_NOTIFY = f"NOTIFY {CHANNEL}"  # without parameters it is one message: behind a pooler, two may reach two servers


def statement(schema: str, named: str) -> str:
    """Return the statement `accept`, `accept_many` or `handle_once` for *schema*, with parameters `$1`, `$2` …."""
    return statements(schema)[named]


def columns_of(draft: Draft) -> list[Any]:
    """Return what `accept` takes but its last parameter; `accept_many` takes a list of each."""
    return row_of(draft)


def held_name(text: str) -> str:
    """Return *text* as a column with an index holds it."""
    return name(text)


def meaning_of(sqlstate: str, detail: str) -> Exception | None:
    """Return what the server refused, in our words; None if it is not one of our refusals."""
    return refusal_of(sqlstate, detail)


class Notifier:
    """One connection that tells listening workers that there may be work."""

    def __init__(self, dsn: str, *, pooled: bool) -> None:
        self._server = Server(dsn, size=1, pooled=pooled)

    async def notify(self) -> None:
        """Wake the workers; connects first if it must."""
        if self._server.closed:
            await self._server.open()
        await self._server.ask(_send)

    async def close(self) -> None:
        """Close the connection; `notify` opens another."""
        await self._server.close()


async def _send(connection: Any, _again: bool) -> None:  # noqa: FBT001 - every work is called like this
    await connection.execute(_NOTIFY)
