"""Two addresses and an orderly end."""

from __future__ import annotations

import asyncio

import pytest
from tests.sources.webhook.serving.running import request, running, status, talk, until

from redrive import Redrive
from redrive.errors import SettingsError
from redrive.sources.webhook import Inbox, Source
from redrive.sources.webhook.serving.server import listen, name_of, serve


def made(**options):
    app = Redrive("memory://")
    return app, Inbox(app, [Source.github(insecure=True), Source.plain(insecure=True)], **options)


async def test_senders_and_operators_have_addresses_of_their_own():
    app, inbox = made()
    handled = asyncio.Event()

    @app.handler("github")
    async def take(payload: bytes) -> None:
        handled.set()

    async with running(inbox) as (public, admin):
        assert status(await talk(public, request("/hooks/github", b"{}"))) == 202
        await asyncio.wait_for(handled.wait(), 10)
        plain = b'{"idempotency_key": "k", "event_type": "t", "payload": 1}'
        assert status(await talk(public, request("/webhooks", plain))) == 202
        assert status(await talk(public, request("/hooks/webhooks", plain))) == 200
        for path in ("/health", "/ready", "/metrics", "/sources", "/github", "/webhooks/x", "/hooks/github/x"):
            assert status(await talk(public, request(path, method="GET"))) in (404, 405), path
        for path in ("/health", "/ready", "/metrics", "/webhooks?idempotency_key=k"):
            assert status(await talk(admin, request(path, method="GET"))) == 200, path
        assert status(await talk(admin, request("/hooks/github", b"{}"))) == 405


async def until_refused(host: str, port: int) -> None:
    """Return once new connections are refused."""
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection(host, port)
            except OSError:
                return
            writer.close()


async def test_it_ends_in_order_a_request_under_way_finishes_and_ready_says_why_not():
    app, inbox = made()
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.handler("github")
    async def take(payload: bytes) -> None:
        begun.set()
        await go_on.wait()

    stop = asyncio.Event()
    public, admin = listen("127.0.0.1:0"), listen("127.0.0.1:0")
    addresses = name_of(public), name_of(admin)
    task = asyncio.create_task(serve(inbox, public, admin, stop))
    await until(lambda: inbox.worker)
    host, port = addresses[0].rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    whole = request("/hooks/github", b"{}")
    writer.write(whole[:-2])  # under way: its last bytes are missing
    await talk(addresses[0], request("/hooks/github", b"first"))
    await asyncio.wait_for(begun.wait(), 10)
    stop.set()
    await until(inbox.reasons)
    ready = await talk(addresses[1], request("/ready", method="GET"))
    assert (status(ready), b"shutting down" in ready) == (503, True)
    await until_refused(host, int(port))
    writer.write(whole[-2:])
    assert status(await reader.read()) == 202
    writer.close()
    assert not task.done()  # the worker drains
    go_on.set()
    await asyncio.wait_for(task, 20)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x", "127.0.0.1:99999", "256.0.0.1:80", ""])
def test_an_address_that_cannot_be_listened_on_is_refused_in_words(address):
    with pytest.raises(SettingsError, match="cannot listen on"):
        listen(address)


def test_a_port_that_is_taken_is_refused_in_words():
    with listen("127.0.0.1:0") as taken, pytest.raises(SettingsError, match="give a free HOST:PORT"):
        listen(name_of(taken))
