"""A dead webhook is a letter: the commands for letters find, explain, change and send it like any other."""

from __future__ import annotations

import asyncio

import pytest
from tests.sources.webhook.asgi import post

from redrive import Redrive
from redrive.sources.webhook import Inbox, Source

PUSH = [(b"x-github-event", b"push"), (b"x-github-delivery", b"d-1"), (b"content-type", b"application/json")]
BODY = b'{"order": 17}'


def service(url, handled):
    """Return an inbox whose handler refuses order 17."""
    app = Redrive(url)
    inbox = Inbox(app, [Source.github(insecure=True)])

    @app.handler("github.push")
    async def push(payload: dict) -> None:
        handled.append(payload)
        if payload["order"] == 17:
            raise ConnectionError("order 17 is locked")

    return app, inbox


@pytest.fixture
def handled():
    return []


@pytest.fixture
def dead(redrive, handled, monkeypatch):
    """Return the id of an event that was tried three times."""
    monkeypatch.setenv("RETRY_BASE_DELAY", "0.002")
    monkeypatch.setenv("MAX_ATTEMPTS", "3")
    app, inbox = service(redrive.url, handled)

    async def receiving():
        async with app:
            answer = await post(inbox, "/github", BODY, PUSH)
            await app.run(until_idle=True, signals=False)
        return answer.json["id"]

    return asyncio.run(receiving())


def test_a_dead_event_is_listed_and_grouped_by_its_origin(redrive, dead):
    assert [one["id"] for one in redrive.json("ls", "-q", "origin:webhook:github")["letters"]] == [dead]
    (group,) = redrive.json("groups", "-q", "origin:webhook:github")["groups"]
    assert (group["error_type"], group["count"]) == ("ConnectionError", 1)
    assert redrive.json("ls", "-q", "origin:webhook:stripe")["letters"] == []


def test_explain_shows_the_inboxs_waits_and_why_the_event_is_dead(redrive, dead):
    told = redrive.json("explain", dead)

    assert [one["delay"] for one in told["tries"]] == pytest.approx([0.004, 0.008, 0])
    assert [one["attempt"] for one in told["tries"]] == [1, 2, 3]
    text = redrive("explain", dead).stdout
    assert "ConnectionError" in text
    assert "order 17 is locked" in text


def test_what_if_says_what_another_policy_would_have_done_with_the_event(redrive, dead):
    told = redrive.json("explain", dead, "--what-if", "exponential:max_attempts=8")

    assert len(told["tries"]) > 3
    assert redrive.statuses() == {dead: "failed"}


def test_an_edited_event_is_sent_as_edited_with_its_headers_and_stays_one_event(redrive, dead, handled):
    before = redrive.json("show", dead)

    redrive("edit", dead, "--payload", '{"order": 18}', "--yes", "--reason", "17 was cancelled", "--by", "ana")
    redrive("replay", dead, "--yes", "--reason", "fixed", "--by", "ana")

    shown = redrive.json("show", dead)
    assert (shown["payload"], shown["payload_version"]) == ({"order": 18}, 2)
    for name in ("headers", "metadata", "origin"):
        assert shown[name] == before[name] != []
    for name in ("kind", "idempotency_key", "created_at"):
        assert shown["letter"][name] == before["letter"][name]
    app, inbox = service(redrive.url, handled)

    async def finishing():
        async with app:
            await app.run(until_idle=True, signals=False)
            return await post(inbox, "/github", BODY, PUSH)

    again = asyncio.run(finishing())
    assert handled == [{"order": 17}] * 3 + [{"order": 18}]
    assert (again.status, again.json["id"]) == (200, dead)
    assert redrive.statuses() == {dead: "delivered"}
