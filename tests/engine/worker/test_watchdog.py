"""The watchdog: bites a blocked loop, and no other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

from tests.engine.starting import PATIENCE

from redrive.engine.worker.watchdog import EXIT_CODE, Watchdog

ROOT = Path(__file__).parents[3]
SPANS = (0.05, 1.0, 10.0)  # seconds, each tried if the machine itself stood still for the one before


async def test_it_bites_once_the_loop_is_blocked():
    bitten = threading.Event()
    dog = Watchdog(0.05, bite=bitten.set)
    dog.start()
    await asyncio.sleep(0)
    assert bitten.wait(PATIENCE)  # this very wait blocks the loop
    dog.stop()


async def test_it_leaves_a_loop_that_turns_alone():
    for seconds in SPANS:
        bitten = threading.Event()
        dog = Watchdog(seconds, bite=bitten.set)
        dog.start()
        for _ in range(40):
            await asyncio.sleep(seconds / 20)  # in all twice as long as it waits
        dog.stop()
        if not bitten.is_set():
            break
    assert not bitten.is_set()


async def test_stopped_it_bites_no_more():
    for seconds in SPANS:
        bitten = threading.Event()
        dog = Watchdog(seconds, bite=bitten.set)
        dog.start()
        dog.stop()
        if not bitten.wait(4 * seconds):  # blocked for longer than it would have waited
            break
    assert not bitten.is_set()


def test_a_worker_with_a_blocked_loop_is_ended_and_says_so(tmp_path):
    for seconds in (0.3, 3, 30):  # a start that takes longer is bitten too, and says another place
        done = _blocked(tmp_path, seconds)
        if "in ship" in done.stderr:
            break
    assert done.returncode == EXIT_CODE
    assert "the event loop is blocked" in done.stderr
    assert "in ship" in done.stderr  # where it hangs


def _blocked(folder: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    program = f"""
import asyncio, threading
from redrive import Redrive
app = Redrive("sqlite:///{folder}/redrive.db", watchdog_seconds={seconds})

@app.handler("order.created")
async def ship(order: dict):
    threading.Event().wait()  # blocks the loop for ever

async def main():
    await app.enqueue("order.created", {{}})
    await app.run(watchdog=True)
asyncio.run(main())
"""
    return subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
