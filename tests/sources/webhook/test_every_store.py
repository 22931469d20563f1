"""The inbox works on every store: one letter per event, full before kept, any bytes."""

from __future__ import annotations

import asyncio

import pytest
from tests.sources.webhook.asgi import get, post
from tests.stores.conftest import server_url

from redrive import Redrive
from redrive.core.query import parse
from redrive.sources.webhook import Inbox, Source


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def app(request, tmp_path, monkeypatch):
    monkeypatch.setenv("QUEUE_MAXSIZE", "30")
    if request.param == "postgres":
        url = f"{server_url()}?schema=inbox_{tmp_path.name.replace('-', '_')[-40:]}"
    else:
        url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/inbox.db"
    made = Redrive(url)
    yield made
    await made.close()


async def test_one_letter_per_event_full_before_kept_any_bytes(app):
    inbox = Inbox(app, [Source.stripe(insecure=True)])
    seen = []

    @app.handler("stripe.odd")
    async def odd(payload: bytes) -> None:
        seen.append(payload)

    @app.handler("stripe")
    async def other(payload: bytes) -> None:
        seen.append(payload)

    bodies = [b'{"id": "evt_%d", "type": "%s"}' % (n % 10, b"odd" if n % 3 else b"x\\u0000/y") for n in range(40)]
    answers = await asyncio.gather(*(post(inbox, "/stripe", body) for body in bodies))
    assert sorted(answer.status for answer in answers) == [200] * 30 + [202] * 10
    odd_bytes = (b"\x00\xff", b'{"id": "\\u0000\\ud800"}', '{"id": "\udcff"}'.encode("utf-8", "surrogatepass"))
    for body in odd_bytes:
        assert (await post(inbox, "/stripe", body, [(b"x-\xff", b"\x00\xff")], query=b"\xff\x00")).status == 202
    more = [await post(inbox, "/stripe", b'{"id": "more_%d"}' % n) for n in range(20)]
    assert [answer.status for answer in more] == [202] * 17 + [429] * 3
    await app.run(until_idle=True, signals=False)
    assert len(seen) == 30
    assert set(odd_bytes) <= set(seen)
    assert await app.store.count(parse("origin:webhook:stripe")) == 30
    letter_id = answers[0].json["id"]
    assert (await get(inbox.admin, f"/stripe/{letter_id}")).json["status"] == "completed"


async def test_code_that_cannot_await_enqueues_into_the_same_application(app):
    Inbox(app, [Source.stripe(insecure=True, forward="http://localhost:9/")])
    receipt = await asyncio.to_thread(app.sync.enqueue, "stripe", b"{}", queue="inbox")
    await app.open()
    if app.settings.url != "memory://":
        assert await app.store.get(receipt.id) is not None
    await asyncio.to_thread(app.sync.close)
