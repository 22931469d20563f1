"""An inbox whose store is away: when it begins, and while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest
from tests.sources.webhook.asgi import get, post
from tests.stores.spool.shutter import Shuttered

from redrive import Redrive
from redrive.sources.webhook import Inbox, Source
from redrive.stores.spool import SpoolStore

PUSH = ((b"x-github-event", b"push"),)


@pytest.fixture
def behind(tmp_path):
    made = Shuttered(tmp_path / "inbox.db")
    made.shutter.touch()
    return made


def inbox_on(store):
    handled = asyncio.Queue()
    app = Redrive(store=store)
    inbox = Inbox(app, [Source.github(insecure=True)])

    @app.handler("github.push")
    async def push(n: int) -> None:
        handled.put_nowait(n)

    return inbox, handled


async def ready(inbox):
    return (await get(inbox.admin, "/ready")).json


async def test_without_a_spool_it_begins_answers_503_and_heals_by_itself(behind, caplog, monkeypatch):
    monkeypatch.setattr("redrive.sources.webhook.inbox._AWAY", 0.001)
    inbox, handled = inbox_on(behind)
    async with inbox.lifespan():
        answer = await post(inbox, "/github", b"1", PUSH)
        assert (answer.status, answer.headers[b"retry-after"]) == (503, b"5")
        assert await ready(inbox) == {"ready": False, "reasons": ["the store does not answer (StoreUnavailable)"]}
        assert (await get(inbox.admin, "/health")).json == {"status": "ok"}  # no reason to kill the process
        behind.shutter.unlink()
        async with asyncio.timeout(10):
            while (await post(inbox, "/github", b"2", PUSH)).status == 503:  # noqa: ASYNC110 - as a sender does
                await asyncio.sleep(0)
            assert await handled.get() == 2
        assert await ready(inbox) == {"ready": True, "reasons": []}
    assert [record.message.split()[0] for record in caplog.records].count("redrive.inbox.store_away") == 1


async def test_while_it_waits_for_its_store_no_request_tries_to_open_it(behind, monkeypatch):
    monkeypatch.setattr("redrive.sources.webhook.inbox._AWAY", 600.0)
    inbox, _ = inbox_on(behind)
    async with inbox.lifespan():
        behind.shutter.unlink()  # it is back, and the inbox has not looked yet
        assert (await post(inbox, "/github", b"1", PUSH)).status == 503


async def test_with_a_spool_it_begins_accepts_and_handles_when_the_store_is_back(behind, tmp_path, monkeypatch):
    monkeypatch.setattr("redrive.sources.webhook.inbox._AWAY", 0.001)
    store = SpoolStore(behind, str(tmp_path / "spool.db"), limit=2)
    inbox, handled = inbox_on(store)
    async with inbox.lifespan():
        kept = await post(inbox, "/github", b"1", PUSH)
        again = await post(inbox, "/github", b"1", PUSH)
        assert (kept.status, again.status, kept.json["id"]) == (202, 200, again.json["id"])
        assert await ready(inbox) == {"ready": True, "reasons": []}
        assert (await get(inbox.admin, "/health")).json["status"] == "degraded, 1 waiting"
        page = (await get(inbox.admin, "/metrics")).body.decode()
        assert "redrive_store_up 0.0" in page
        assert "redrive_spool_waiting 1.0" in page
        assert (await post(inbox, "/github", b"2", PUSH)).status == 202
        assert await ready(inbox) == {"ready": False, "reasons": ["the spool is full"]}
        assert (await post(inbox, "/github", b"3", PUSH)).status == 503
        behind.shutter.unlink()
        async with asyncio.timeout(10):
            assert {await handled.get(), await handled.get()} == {1, 2}
            while (await store.spooled()).waiting:  # it leaves the spool after its store has it
                await store.stepped()
        assert (await get(inbox.admin, "/health")).json == {
            "status": "ok",
            "spool": {"waiting": 0, "refused": 0, "forwarded": 2, "duplicates": 0, "limit": 2},
        }
        page = (await get(inbox.admin, "/metrics")).body.decode()
        assert "redrive_store_up 1.0" in page
        assert "redrive_spool_forwarded_total 2.0" in page


async def test_letters_of_a_type_without_a_handler_of_its_own_are_adopted_when_the_store_is_back(
    behind, tmp_path, monkeypatch
):
    monkeypatch.setattr("redrive.sources.webhook.inbox._AWAY", 0.001)
    behind.shutter.unlink()
    earlier = Redrive(store=behind)
    await earlier.enqueue("github.star", 7, queue="inbox")
    await earlier.close()
    behind = Shuttered(tmp_path / "inbox.db")
    behind.shutter.touch()
    inbox, _ = inbox_on(SpoolStore(behind, str(tmp_path / "spool.db"), limit=2))
    handled = asyncio.Queue()

    @inbox.app.handler("github")
    async def take(n: int) -> None:
        handled.put_nowait(n)

    async with inbox.lifespan():
        behind.shutter.unlink()
        async with asyncio.timeout(10):
            assert await handled.get() == 7


async def test_a_forward_takes_the_first_event_of_an_inbox_whose_lifespan_nobody_ran(app):
    inbox = Inbox(app, [Source.github(insecure=True, forward="http://127.0.0.1:9")], workers="here")
    answer = await post(inbox, "/github", b"{}", ((b"x-github-delivery", b"1"),))
    assert (answer.status, answer.json["status"]) == (202, "pending")


async def test_an_event_in_the_spool_is_answered_with_its_key(behind, tmp_path):
    store = SpoolStore(behind, str(tmp_path / "spool.db"), limit=2)
    app = Redrive(store=store)
    inbox = Inbox(app, [Source.plain(insecure=True)], workers="elsewhere")
    async with inbox.lifespan():
        body = b'{"idempotency_key": "k-1", "event_type": "order.paid", "payload": 1}'
        kept, again = await post(inbox, "/webhooks", body), await post(inbox, "/webhooks", body)
    at = kept.json["created_at"]
    named = {"id": kept.json["id"], "idempotency_key": "k-1", "status": "pending", "created_at": at}
    assert (kept.status, kept.json) == (202, named)
    assert (again.status, again.json["idempotency_key"], again.json["id"]) == (200, "k-1", kept.json["id"])


async def test_an_event_that_waited_in_the_spool_was_created_when_it_was_accepted(behind, tmp_path):
    store = SpoolStore(behind, str(tmp_path / "spool.db"), limit=2)
    inbox = Inbox(Redrive(store=store), [Source.plain(insecure=True)], workers="elsewhere", now=lambda: 1_000_000.123)
    async with inbox.lifespan():
        body = b'{"idempotency_key": "k-1", "event_type": "order.paid", "payload": 1}'
        begun = datetime.now(UTC)
        kept = await post(inbox, "/webhooks", body)
        ended = datetime.now(UTC)
        assert kept.json["created_at"] == "1970-01-12T13:46:40.123000Z"
        behind.shutter.unlink()
        async with asyncio.timeout(10):
            while (await store.spooled()).waiting:
                await store.stepped()
        found = (await get(inbox.admin, f"/webhooks/{kept.json['id']}")).json
        letter = await store.get(kept.json["id"])
        with contextlib.closing(sqlite3.connect(f"file:{behind.path}?mode=ro", uri=True)) as database:
            [(in_view, retry_after)] = database.execute("SELECT created_at, retry_after FROM events")
    assert (begun <= letter.created_at <= ended < letter.updated_at, retry_after) == (True, None)
    assert abs(datetime.fromisoformat(in_view) - letter.created_at) <= timedelta(milliseconds=1)
    assert found["created_at"] == kept.json["created_at"]
    assert found["updated_at"] > found["created_at"]
