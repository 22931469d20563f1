"""kill -9 between the steps of receiving and processing, while senders send again as they do."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sources.webhook.forwarding.destination import destination
from tests.sources.webhook.serving.running import request, status, talk

from redrive.core.query import parse
from redrive.stores.contract import books
from redrive.stores.sqlite import SqliteStore

SHOP = """
from redrive import Redrive

app = Redrive(sweep_seconds=0.2)

@app.handler("standard")
async def take(payload: bytes) -> None:
    with open("handled", "ab") as file:
        file.write(payload + b"\\n")
"""
POINTS = [
    "inbox.received", "inbox.checked", "put.before", "put.after", "inbox.kept", "inbox.answered",
    "processor.before_start", "processor.after_start", "processor.before_decide", "exchange.before@2",
]  # fmt: skip


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


@pytest.fixture
def served(tmp_path):
    made = Served(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


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


async def until_done(served: Served, count: int) -> dict[str, int]:
    for _ in range(600):
        found, _ = await kept(served)
        if found["delivered"] + found["failed"] == count:
            return found
        await asyncio.sleep(0.05)  # another process works
    pytest.fail(f"not all were handled: {found}")


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
async def test_an_event_survives_a_kill_at_every_step_and_is_one_letter(served, point):
    name, _, times = point.partition("@")
    served.start(f"{name}=kill@{times or 1}")
    await asyncio.gather(talk(served.address, event("a")), return_exceptions=True)
    try:
        served.process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        pytest.fail(f"{point} was never passed")
    served.process.communicate()
    served.start()
    await send(served, "a")
    found = await until_done(served, 1)
    assert served.end() == 0
    assert (found["enqueued"], found["delivered"]) == (1, 1)


@pytest.mark.slow
async def test_a_forward_that_was_confirmed_and_not_settled_is_sent_again_with_the_same_key(served):
    async with destination() as there:
        served.start("forward.confirmed=kill", forward=there.url)
        await send(served, "a")
        await asyncio.to_thread(served.process.wait, 15)
        served.process.communicate()
        served.start(forward=there.url)
        found = await until_done(served, 1)
        assert await asyncio.to_thread(served.end) == 0
    assert found["delivered"] == 1
    assert [got.header("idempotency-key") for got in there.got] == ["standard:a"] * 2


@pytest.mark.torture
async def test_a_hundred_senders_through_five_kills_lose_nothing_and_double_nothing(served):
    names = [f"evt-{sender}-{n}" for sender in range(100) for n in range(5)]
    served.start()
    answers: dict[str, set] = {}

    async def sender(number: int) -> None:
        for n in range(5):
            name = f"evt-{number}-{n}"
            answers[name] = await send(served, name)

    senders = [asyncio.create_task(sender(number)) for number in range(100)]
    dice = random.Random(5)
    for kill in range(5):
        goal = len(names) * (kill + 1) // 7
        while len(answers) < goal:  # noqa: ASYNC110 - how far the senders are
            await asyncio.sleep(0.01)
        await asyncio.sleep(dice.random() / 50)
        served.kill()
        served.start()
    await asyncio.gather(*senders)
    found = await until_done(served, len(names))
    assert served.end() == 0
    _, statuses = await kept(served)
    assert sorted(statuses) == sorted(names)  # every 2xx is exactly one letter
    assert found["enqueued"] == len(names) == found["delivered"] + found["failed"]
    handled = (served.folder / "handled").read_text().split()
    assert set(handled) == {name for name, state in statuses.items() if state == "delivered"}
