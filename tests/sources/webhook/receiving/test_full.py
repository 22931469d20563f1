"""A full queue: refused before anything is kept, and open again once there is room."""

from __future__ import annotations

from tests.sources.webhook.asgi import post

from redrive.core.query import parse
from redrive.sources.webhook import Inbox, Source


async def take(payload: bytes) -> None:
    """Take anything."""


async def test_a_full_queue_is_429_with_retry_after_and_nothing_is_kept(app, monkeypatch):
    monkeypatch.setenv("QUEUE_MAXSIZE", "2")
    app.add_handler("github", take)
    inbox = Inbox(app, [Source.github(insecure=True)])
    for body in (b"1", b"2"):
        assert (await post(inbox, "/github", body)).status == 202
    refused = await post(inbox, "/github", b"3")
    assert (refused.status, refused.headers[b"retry-after"]) == (429, b"5")
    assert (await post(inbox, "/github", b"1")).status == 200  # a duplicate needs no room
    assert await app.store.count(parse("origin:webhook:*")) == 2
    assert inbox.counts.results["github", "full"] == 1
    await app.run(until_idle=True, signals=False)
    assert (await post(inbox, "/github", b"3")).status == 202  # the sender's own retry is a new event


async def test_events_without_a_handler_do_not_count_towards_full(app, monkeypatch):
    monkeypatch.setenv("QUEUE_MAXSIZE", "1")
    app.add_handler("github.push", take)
    inbox = Inbox(app, [Source.github(insecure=True)])
    for body in (b"1", b"2", b"3"):
        assert (await post(inbox, "/github", body)).json["status"] == "failed"
    assert (await post(inbox, "/github", b"4", [(b"x-github-event", b"push")])).status == 202
