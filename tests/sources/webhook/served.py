"""`redrive inbox run` in a process that is killed and started again, and senders that send again as providers do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.sources.webhook.serving.running import request, status, talk

from redrive.core.query import parse
from redrive.stores.contract import books
from redrive.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from redrive.core.letter import Letter

SHOP = """
from redrive import Redrive

app = Redrive(sweep_seconds=0.2)

@app.handler("standard")
async def take(payload: bytes) -> None:
    with open("handled", "ab") as file:
        file.write(payload + b"\\n")
"""


class Served:
    """`redrive inbox run` on one port, started again and again."""

    def __init__(self, folder: Path) -> None:
        (folder / "shop.py").write_text(SHOP)
        self.folder, self.process, self.port = folder, None, 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, failpoints: str = "", *, forward: str = "") -> None:
        words = ["inbox", "run", "--source", "standard", "--insecure"]
        words += ["--forward", forward] if forward else ["--app", "shop:app"]
        command = [sys.executable, "-m", "redrive.cli", "--url", "sqlite:///inbox.db", *words]
        command += ["--address", f"127.0.0.1:{self.port}", "--admin-address", "127.0.0.1:0"]
        source = str(Path(__file__).parents[3] / "src")
        env = os.environ | {"PYTHONPATH": source, "REDRIVE_FAILPOINTS": failpoints, "REDRIVE_URL": "sqlite:///inbox.db"}
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen(
            command, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=log, text=True
        )
        log.close()
        line = self.process.stdout.readline()
        assert line.startswith("receiving on"), (self.folder / "log").read_text()
        self.port = int(line.split("/hooks")[0].rsplit(":", 1)[1])

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> int:
        self.process.terminate()
        self.process.communicate(timeout=60)
        return self.process.returncode


def event(name: str) -> bytes:
    return request("/hooks/standard", name.encode(), f"webhook-id: {name}")


async def send(served: Served, name: str) -> set[tuple[int, bytes]]:
    """Send an event until it is accepted, as a provider does; return the answers that accepted it."""
    for _ in range(600):
        try:
            answer = await talk(served.address, event(name), patience=20)
        except (OSError, TimeoutError):
            answer = b""
        if status(answer) in (200, 202):
            return {(status(answer), answer.rpartition(b"\r\n\r\n")[2])}
        assert status(answer) in (0, 429, 503), answer
        await asyncio.sleep(0.05)  # a sender waits before it sends again
    pytest.fail(f"{name} was never accepted")


async def kept(served: Served) -> tuple[dict[str, int], dict[str, str]]:
    """Return the books, and the status of each event by its id."""
    store = SqliteStore(served.folder / "inbox.db")
    await store.open()
    try:
        page = await store.find(parse("origin:webhook:standard"), limit=5_000)
        return dict(books(await store.tallies())), {
            letter.metadata["event_id"]: letter.status for letter in page.letters
        }
    finally:
        await store.close()


async def dead(served: Served) -> list[Letter]:
    """Return the dead letters."""
    store = SqliteStore(served.folder / "inbox.db")
    await store.open()
    try:
        return list((await store.find(parse("status:failed"), limit=5_000)).letters)
    finally:
        await store.close()


async def until_done(served: Served, count: int) -> dict[str, int]:
    for _ in range(600):
        found, _ = await kept(served)
        if found["delivered"] + found["failed"] == count:
            return found
        await asyncio.sleep(0.05)  # another process works
    pytest.fail(f"not all were handled: {found}")
