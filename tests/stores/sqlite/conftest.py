"""The embedded store alone, for what is special about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import pytest

from redrive.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from redrive.stores.clock import ManualClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "redrive.db"


@pytest.fixture
async def sqlite(path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(path, clock=clock)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def sql(path: Path) -> Iterator[Callable[..., list[tuple]]]:
    """Ask the file directly, on a connection of the test's own."""
    connections: list[apsw.Connection] = []

    def ask(statement: str, *bindings: object) -> list[tuple]:
        if not connections:
            connections.append(apsw.Connection(str(path)))
        return connections[0].execute(statement, bindings).fetchall()

    yield ask
    for connection in connections:
        connection.close()
