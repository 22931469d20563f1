"""The watchdog: bites a blocked loop, and no other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

from tests.engine.starting import PATIENCE

from redrive.engine.watchdog import EXIT_CODE, Watchdog

ROOT = Path(__file__).parents[2]


async def test_it_bites_once_the_loop_is_blocked():
    bitten = threading.Event()
    dog = Watchdog(0.05, bite=bitten.set)
    dog.start()
    await asyncio.sleep(0)
    assert bitten.wait(PATIENCE)  # this very wait blocks the loop
    dog.stop()


async def test_it_leaves_a_loop_that_turns_alone():
    bitten = threading.Event()
    dog = Watchdog(1.0, bite=bitten.set)
    dog.start()
    for _ in range(20):
        await asyncio.sleep(0.005)
    dog.stop()
    assert not bitten.is_set()


async def test_stopped_it_bites_no_more():
    bitten = threading.Event()
    dog = Watchdog(0.05, bite=bitten.set)
    dog.start()
    dog.stop()
    assert not bitten.wait(0.2)  # blocked for longer than it would have waited


def test_a_worker_with_a_blocked_loop_is_ended_and_says_so(tmp_path):
    program = f"""
import asyncio, threading
from redrive import Redrive
app = Redrive("sqlite:///{tmp_path}/redrive.db", watchdog_seconds=0.3)

@app.handler("order.created")
async def ship(order: dict):
    threading.Event().wait()  # blocks the loop for ever

async def main():
    await app.enqueue("order.created", {{}})
    await app.run(watchdog=True)
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == EXIT_CODE
    assert "the event loop is blocked" in done.stderr
    assert "in ship" in done.stderr  # where it hangs
