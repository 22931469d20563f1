"""What users of a hand-made inbox saw, and must not see here."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sources.webhook.asgi import get, post

from redrive import Redrive
from redrive.core.facts import Retried
from redrive.core.query import parse
from redrive.sources.webhook import Inbox, Source
from redrive.testing import drive

PUSH = [(b"x-github-event", b"push")]
CRASHING = """
import asyncio, os, sys
from redrive import Redrive
from redrive.sources.webhook import Inbox, Source

app = Redrive(sys.argv[1], sweep_seconds=0.1)
inbox = Inbox(app, [Source.github(insecure=True)])

@app.handler("github.push")
async def push(payload: bytes) -> None:
    os._exit(9) if payload == b"poison" else None

asyncio.run(app.run(until_idle=True, signals=False))
"""


def made(url, calls, *, fails=0):
    app = Redrive(url)
    inbox = Inbox(app, [Source.github(insecure=True)])

    @app.handler("github.push")
    async def push(payload: bytes) -> None:
        calls.append(payload)
        if len(calls) <= fails:
            raise ConnectionError("away")

    return app, inbox


async def test_a_failed_event_is_retried_while_the_service_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("RETRY_BASE_DELAY", "0.01")
    calls = []
    app, inbox = made(f"sqlite:///{tmp_path}/a.db", calls, fails=2)
    async with app:
        await post(inbox, "/github", b"{}", PUSH)
        await app.run(until_idle=True, signals=False)
    assert len(calls) == 3


async def test_an_event_whose_retry_was_due_later_is_tried_again_after_a_restart(tmp_path, monkeypatch):
    monkeypatch.setenv("RETRY_BASE_DELAY", "0.2")
    calls = []
    app, inbox = made(f"sqlite:///{tmp_path}/a.db", calls, fails=1)
    failed = asyncio.Event()
    app.listen(lambda fact: failed.set() if isinstance(fact, Retried) else None)
    async with app:
        await post(inbox, "/github", b"{}", PUSH)
        running = asyncio.create_task(app.run(signals=False))
        await asyncio.wait_for(failed.wait(), 10)
        app.stop()
        await running
    again, _ = made(f"sqlite:///{tmp_path}/a.db", calls, fails=1)
    async with again:
        await again.run(until_idle=True, signals=False)
        assert await again.store.count(parse("status:delivered")) == 1
    assert len(calls) == 2


async def test_an_event_that_was_refused_by_a_full_queue_is_handled_when_it_is_sent_again(tmp_path, monkeypatch):
    monkeypatch.setenv("QUEUE_MAXSIZE", "1")
    calls = []
    app, inbox = made(f"sqlite:///{tmp_path}/a.db", calls)
    delivery = [*PUSH, (b"x-github-delivery", b"2")]
    async with app:
        assert (await post(inbox, "/github", b"1", PUSH)).status == 202
        assert (await post(inbox, "/github", b"2", delivery)).status == 429
        await app.run(until_idle=True, signals=False)
        assert (await post(inbox, "/github", b"2", delivery)).status == 202  # not 200: nothing was kept before
        await app.run(until_idle=True, signals=False)
    assert calls == [b"1", b"2"]


async def test_a_dead_letter_is_still_there_after_a_year_and_can_be_listed_and_replayed(monkeypatch):
    monkeypatch.setenv("MAX_ATTEMPTS", "1")
    calls = []
    app, inbox = made("memory://", calls, fails=1)
    async with drive(app) as test:
        answer = await post(inbox, "/github", b"1", PUSH)
        await post(inbox, "/github", b"2", PUSH)
        await test.run_until_idle()
        test.clock.advance(365 * 86_400)
        assert await app.store.retain(app.settings.retention) == 1  # the completed one
        assert [letter.id for letter in await test.letters("status:failed")] == [answer.json["id"]]
        await app.desk.replay(answer.json["id"], reason="fixed")
        await test.run_until_idle()
    assert calls == [b"1", b"2", b"1"]


@pytest.mark.slow
async def test_a_payload_that_kills_the_service_does_not_kill_it_at_each_start(tmp_path):
    url = f"sqlite:///{tmp_path}/a.db"
    app, inbox = made(url, [])
    async with app:
        poison = (await post(inbox, "/github", b"poison", PUSH)).json["id"]
        for body in (b"1", b"2"):
            await post(inbox, "/github", body, PUSH)
    source = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    codes = [
        subprocess.run([sys.executable, "-c", CRASHING, url], env=source, check=False, timeout=60).returncode  # noqa: ASYNC221
        for _ in range(4)
    ]
    assert codes == [9, 9, 9, 0]
    async with app:
        shown = (await get(inbox.admin, f"/github/{poison}")).json
        assert (shown["status"], shown["attempts"]) == ("failed", 3)
        assert await app.store.count(parse("status:delivered")) == 2


async def test_two_processes_may_receive_and_work_at_one_time(tmp_path):
    calls = []
    url = f"sqlite:///{tmp_path}/a.db"
    first, second = made(url, calls), made(url, calls)
    async with first[0], second[0]:
        for n in range(20):
            app_inbox = (first, second)[n % 2]
            assert (await post(app_inbox[1], "/github", b"%d" % n, PUSH)).status == 202
        await asyncio.gather(*(app.run(until_idle=True, signals=False) for app, _ in (first, second)))
    assert sorted(calls, key=int) == [b"%d" % n for n in range(20)]
