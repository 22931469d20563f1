"""Closing while work is handed in: it is finished, and the close ends."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from tests.torture import checker, workload

from redrive.core.letter import Draft
from redrive.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torture


async def test_a_store_that_is_closed_right_after_a_put_keeps_the_letter_and_ends(quick_folder: Path):
    store = SqliteStore(quick_folder / "redrive.db")
    await store.open()
    writer = store._calls.writer
    assert writer is not None
    inside, gate = threading.Event(), threading.Event()
    busy = writer.submit(lambda _turn: (inside.set(), gate.wait(120)))
    assert await asyncio.to_thread(inside.wait, 60)
    putting = asyncio.ensure_future(store.put([Draft(id="late", queue="work", kind="a", payload=b"{}")]))
    await asyncio.sleep(0)  # handed in, and waiting behind what the writer does now
    closing = asyncio.ensure_future(store.close())
    assert await asyncio.to_thread(workload.wait_for, lambda: writer._closing, 60)  # … and so does the wish to close
    gate.set()
    async with asyncio.timeout(60):
        await asyncio.gather(busy, putting, closing)
    assert "late" in checker.read_rows(quick_folder / "redrive.db")
