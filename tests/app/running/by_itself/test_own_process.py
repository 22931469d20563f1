"""A worker in a process of its own: signals, kill -9, restarts."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from tests.app.waiting import count
from tests.engine.starting import PATIENCE, soon

from redrive import Redrive, RetryPolicy, Status
from redrive.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


ROOT = Path(__file__).parents[4]


PROGRAM = """
import asyncio, sys
from redrive import Redrive
app = Redrive(f"sqlite:///{sys.argv[1]}", drain_seconds=60, lease_seconds=float(sys.argv[2]))

@app.handler("order.created")
async def ship(order: dict):
    print("began", flush=True)
    await asyncio.to_thread(sys.stdin.readline) if order["wait"] else None
    if order["wait"] == "forever":
        await asyncio.Event().wait()
    while order["wait"] == "in spite of everything":
        print("goes on", flush=True)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def main():
    async with app:
        await app.run()
asyncio.run(main())
print("ended", flush=True)
"""


class Child:
    """A worker process; it tells when a letter began and reads a line before it goes on."""

    def __init__(self, path: Path, lease: float = 60) -> None:
        self.path, self.lease = path, lease

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-c", PROGRAM, str(self.path), str(self.lease))
        environment = {"PYTHONPATH": str(ROOT / "src")}
        self.process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environment)
        return self

    async def __aexit__(self, *_) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()

    async def says(self, word: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                line = await self.process.stdout.readline()
                assert line, f"it ended without saying {word!r}"
                if line.decode().strip() == word:
                    return

    def go_on(self) -> None:
        self.process.stdin.write(b"\n")


@pytest.fixture
async def on_file(folder) -> AsyncIterator[Redrive]:
    store = SqliteStore(folder / "redrive.db")
    async with Redrive("memory://", store=store, sweep_seconds=0.05, poll_seconds=0.05) as app:
        yield app


async def test_sigterm_finishes_what_runs(on_file, folder):
    receipt = await on_file.enqueue("order.created", {"wait": "a line"})
    async with Child(folder / "redrive.db") as child:
        await child.says("began")
        child.process.send_signal(signal.SIGTERM)
        child.go_on()
        await child.says("ended")
        assert await soon(child.process.wait()) == 0
    assert (await on_file.desk.show(receipt.id)).status is Status.DELIVERED


async def test_a_second_sigterm_stops_now_and_gives_the_attempt_back(on_file, folder):
    receipt = await on_file.enqueue("order.created", {"wait": "forever"})
    async with Child(folder / "redrive.db") as child:
        await child.says("began")
        child.go_on()
        child.process.send_signal(signal.SIGTERM)
        child.process.send_signal(signal.SIGINT)
        await child.says("ended")
    letter = await on_file.desk.show(receipt.id)
    assert (letter.status, letter.attempts, letter.losses) == (Status.PENDING, 0, 0)


async def test_a_program_ends_although_a_handler_swallows_its_cancellation(on_file, folder):
    receipt = await on_file.enqueue("order.created", {"wait": "in spite of everything"})
    async with Child(folder / "redrive.db") as child:
        await child.says("began")
        child.go_on()
        await child.says("goes on")
        child.process.send_signal(signal.SIGTERM)
        child.process.send_signal(signal.SIGINT)
        await child.says("ended")
        assert await soon(child.process.wait()) == 0
    assert (await on_file.desk.show(receipt.id)).status is Status.PENDING


async def test_a_letter_survives_kill_9_of_its_worker_and_runs_again(on_file, folder):
    receipt = await on_file.enqueue("order.created", {"wait": "forever"})
    async with Child(folder / "redrive.db", lease=2) as child:
        await child.says("began")
    ran = []

    @on_file.handler("order.created")
    async def ship(order: dict):
        ran.append(order)

    await soon(on_file.run(until_idle=True))
    letter = await on_file.desk.show(receipt.id)
    assert (letter.status, letter.attempts, letter.losses) == (Status.DELIVERED, 1, 1)
    assert len(ran) == 1


async def test_nothing_is_lost_by_a_restart_in_the_middle(folder):
    path = folder / "redrive.db"
    ran, stopped = [], []

    def build() -> Redrive:
        app = Redrive(f"sqlite:///{path}", concurrency=2, prefetch=4)

        @app.handler("order.created", policy=RetryPolicy.immediate(max_attempts=2))
        async def ship(order: dict):
            ran.append(order["n"])
            await asyncio.sleep(0)
            if order["n"] % 5 == 0 and ran.count(order["n"]) == 1:
                raise OSError("down")
            if len(ran) >= 20 and not stopped:
                stopped.append(app)
                app.stop()

        return app

    async with build() as app:
        await app.enqueue_many([app.draft("order.created", {"n": n}) for n in range(50)])
        await soon(app.run())
        left = await count(app, "status:pending")
        assert 0 < left < 50
    async with build() as app:
        await soon(app.run(until_idle=True))
        assert await count(app, "status:delivered") == 50
        assert (await app.desk.stats()).balanced
    assert {n: ran.count(n) for n in range(50)} == {n: 1 + (n % 5 == 0) for n in range(50)}
