"""The worker that the inbox starts, in FastAPI and alone; readiness; and what is said when none runs."""

from __future__ import annotations

import asyncio
import sys

import httpx
import pytest
from fastapi import FastAPI
from tests.sources.webhook.asgi import get, post

from redrive.engine.switch_interval import INTERVAL
from redrive.sources.webhook import Inbox, Source


async def test_mounted_in_fastapi_events_are_kept_and_handled(app):
    handled = asyncio.Event()
    inbox = Inbox(app, [Source.github(insecure=True)])
    api = FastAPI(lifespan=inbox.lifespan)
    api.mount("/hooks", inbox)

    @app.handler("github.push")  # after the inbox was made, as in a module of its own
    async def push(payload: dict) -> None:
        handled.set()

    assert app.handlers["github.push"].queue == "inbox"
    async with api.router.lifespan_context(api):
        transport = httpx.ASGITransport(app=api)
        async with httpx.AsyncClient(transport=transport, base_url="http://inbox") as client:
            answer = await client.post("/hooks/github", json={}, headers={"X-GitHub-Event": "push"})
            assert answer.status_code == 202
            assert (await client.post("/hooks/gitlab")).status_code == 404
            assert (await client.get("/hooks/github")).status_code == 405
        await asyncio.wait_for(handled.wait(), 10)
        assert (await get(inbox.admin, "/ready")).json == {"ready": True, "reasons": []}
    assert (await get(inbox.admin, "/ready")).json["reasons"][0] == "it is shutting down"


async def test_alone_it_serves_its_own_lifespan(app):
    inbox = Inbox(app, [Source.github(insecure=True)])
    app.add_handler("github", print)
    incoming, sent = asyncio.Queue(), []
    for kind in ("lifespan.startup", "lifespan.shutdown"):
        incoming.put_nowait({"type": kind})

    async def send(message):
        sent.append(message["type"])

    await inbox({"type": "lifespan"}, incoming.get, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_without_a_worker_the_first_request_says_so_once(app, caplog):
    inbox = Inbox(app, [Source.github(insecure=True)])
    for _ in range(3):
        await post(inbox, "/github", b"{}")
    assert [record.message.split()[0] for record in caplog.records].count("redrive.inbox.no_worker") == 1
    app.add_handler("github.push", print)
    assert (await get(inbox.admin, "/ready")).json["reasons"] == ["its worker does not run"]


async def test_operators_see_health_sources_and_metrics_and_change_nothing(app):
    inbox = Inbox(app, [Source.github(secrets=["env:HOOK_SECRET"])])
    await post(inbox, "/github", b"{}")
    assert (await get(inbox.admin, "/health")).json == {"status": "ok"}
    (source,) = (await get(inbox.admin, "/sources")).json["sources"]
    assert (source["name"], source["secrets"], source["refusals"]) == ("github", 1, {"missing": 1})
    page = (await get(inbox.admin, "/metrics")).body.decode()
    assert 'redrive_inbox_refusals_total{reason="missing",source="github"} 1.0' in page
    assert "redrive_store_up 1.0" in page
    assert (await post(inbox.admin, "/health")).status == 405
    assert (await get(inbox, "/health")).status == 404  # not on the public side


async def test_threads_take_turns_quickly_while_it_receives_also_if_the_worker_is_elsewhere(app):
    found = sys.getswitchinterval()
    inbox = Inbox(app, [Source.github(insecure=True)], workers="elsewhere")
    async with inbox.lifespan():
        assert sys.getswitchinterval() == pytest.approx(INTERVAL, rel=0.1)
    assert sys.getswitchinterval() == pytest.approx(found, rel=0.1)
