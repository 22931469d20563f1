"""A PostgreSQL store that is empty whenever a new folder asks for one: making a schema for each test takes too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.stores.postgres import PostgresStore

if TYPE_CHECKING:
    from pathlib import Path

    from redrive.stores.clock import StoreClock

TABLES = (
    "outbox", "outbox_waits", "outbox_tallies", "outbox_deltas", "outbox_groups", "outbox_queues", "outbox_workers",
    "outbox_state", "outbox_plans", "outbox_audit", "outbox_calls", "outbox_names", "event_handled",
    "subscription", "outbox_unsure",
)  # fmt: skip
_seen: set[tuple[str, Path]] = set()


class FreshStore(PostgresStore):
    """Empties the schema when its folder opens it for the first time."""

    def __init__(self, url: str, folder: Path, clock: StoreClock | None, *, pooled: bool = False) -> None:
        super().__init__(url, clock=clock, pooled=pooled)
        self._name = url, folder

    async def open(self) -> None:
        await super().open()
        if self._name not in _seen:
            _seen.add(self._name)
            await self._server.ask(self._empty)

    async def _empty(self, connection, _again: bool) -> None:
        deletes = (f'DELETE FROM "{self.schema}".{table}' for table in TABLES)  # noqa: S608 - our own names
        await connection.execute("; ".join(deletes))
        await connection.execute(f'UPDATE "{self.schema}".outbox_meta SET retained = 0')  # noqa: S608 - our own name
