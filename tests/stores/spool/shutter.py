"""A store that is away while a file is there: for outages that no real server can be made to have at that moment."""

from __future__ import annotations

from pathlib import Path

from redrive.errors import StoreUnavailable
from redrive.stores.sqlite import SqliteStore

AWAY = "the server is away"


class Shuttered(SqliteStore):
    """An embedded store that cannot be reached while the file beside it, `….away`, exists."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.shutter = Path(f"{path}.away")

    async def open(self):
        self._look()
        await super().open()

    async def put(self, drafts):
        self._look()
        return await super().put(drafts)

    async def get(self, letter_id):
        self._look()
        return await super().get(letter_id)

    async def queues(self):
        self._look()
        return await super().queues()

    def _look(self):
        if self.shutter.exists():
            raise StoreUnavailable(AWAY)
