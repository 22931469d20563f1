"""Tries, waits and ends of an event, as the document says them."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from tests.sources.webhook.asgi import get, post

from redrive import Letter, Redrive, Reject, RetryPolicy
from redrive.sources.webhook import Inbox, Source
from redrive.testing import drive


class Invoice(msgspec.Struct):
    amount: int


@pytest.fixture
def app():
    return Redrive("memory://")


async def receive(inbox, body=b"{}", event=b"push"):
    answer = await post(inbox, "/github", body, [(b"x-github-event", event), (b"content-type", b"application/json")])
    assert answer.status == 202
    return answer.json["id"]


async def test_an_event_is_tried_five_times_after_10_20_40_and_80_seconds(app):
    inbox = Inbox(app, [Source.github(insecure=True)])
    begun = []

    @app.handler("github.push")
    async def fail(payload: dict) -> None:
        begun.append(app.clock.monotonic())
        raise ConnectionError("the shop is away")

    async with drive(app) as test:
        letter_id = await receive(inbox)
        await test.run_until_idle()
        (letter,) = await test.letters("status:failed")
        shown = (await get(inbox.admin, f"/github/{letter_id}")).json
    assert [round(later - sooner) for sooner, later in itertools.pairwise(begun)] == [10, 20, 40, 80]
    assert (letter.attempts, letter.why) == (5, "exhausted")
    assert (shown["status"], shown["attempts"]) == ("failed", 5)
    assert "the shop" not in str(shown)


async def test_the_variables_say_how_often_and_how_long(app, monkeypatch):
    monkeypatch.setenv("MAX_ATTEMPTS", "3")
    monkeypatch.setenv("RETRY_BASE_DELAY", "1m")
    monkeypatch.setenv("RETRY_MAX_DELAY", "150")
    inbox = Inbox(app, [Source.github(insecure=True)])
    begun = []

    @app.handler("github.push")
    async def fail(payload: dict) -> None:
        begun.append(app.clock.monotonic())
        raise ConnectionError

    async with drive(app) as test:
        await receive(inbox)
        await test.run_until_idle()
    assert [round(later - sooner) for sooner, later in itertools.pairwise(begun)] == [120, 150]


async def test_a_handler_that_was_given_a_policy_keeps_it(app):
    inbox = Inbox(app, [Source.github(insecure=True)])

    @app.handler("github.push", policy=RetryPolicy.never())
    async def fail(payload: dict) -> None:
        raise ConnectionError

    async with drive(app) as test:
        await receive(inbox)
        await test.run_until_idle()
        (letter,) = await test.letters("status:failed")
    assert letter.attempts == 1


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (Reject("never"), 1),
        (LookupError("listed"), 1),
        (ValueError("a bug"), 5),
        (msgspec.ValidationError("theirs"), 5),
        (PermissionError("later, perhaps"), 5),
    ],
)
async def test_only_reject_and_the_sources_terminal_errors_are_terminal(app, error, attempts):
    inbox = Inbox(app, [Source.github(insecure=True, terminal_errors=[LookupError])])

    @app.handler("github.push")
    async def fail(payload: dict) -> None:
        raise error

    async with drive(app) as test:
        await receive(inbox)
        await test.run_until_idle()
        (letter,) = await test.letters("status:failed")
    assert letter.attempts == attempts


async def test_an_event_that_does_not_decode_is_retried_because_a_deploy_may_read_it(app):
    inbox = Inbox(app, [Source.github(insecure=True)])

    @app.handler("github.push")
    async def take(event: Invoice) -> None:
        """Take an invoice."""

    async with drive(app) as test:
        await receive(inbox, b'{"amount": "much"}')
        await test.run_until_idle()
        (letter,) = await test.letters("status:failed")
    assert letter.attempts == 5


async def test_an_event_that_succeeds_at_once_shows_no_attempts(app):
    inbox = Inbox(app, [Source.github(insecure=True)])
    seen = []

    @app.handler("github.push")
    async def take(event: Invoice, letter: Letter) -> None:
        seen.append((event.amount, letter.origin, (await get(inbox.admin, f"/github/{letter.id}")).json))

    async with drive(app) as test:
        letter_id = await receive(inbox, b'{"amount": 3}')
        assert (await get(inbox.admin, f"/github/{letter_id}")).json["status"] == "pending"
        await test.run_until_idle()
        shown = (await get(inbox.admin, f"/github/{letter_id}")).json
    ((amount, origin, meanwhile),) = seen
    assert (amount, origin, meanwhile["status"], meanwhile["attempts"]) == (3, "webhook:github", "processing", 0)
    assert (shown["status"], shown["attempts"]) == ("completed", 0)


def test_retention_days_are_for_completed_events_and_dead_letters_stay(monkeypatch):
    app = Redrive("memory://")
    Inbox(app, [Source.github(insecure=True)])
    assert (app.settings.retention.delivered, app.settings.retention.failed) == (30 * 86_400, None)
    monkeypatch.setenv("RETENTION_DAYS", "2")
    app = Redrive("memory://", inbox={"retention_failed_days": 90})
    Inbox(app, [Source.github(insecure=True)])
    assert (app.settings.retention.delivered, app.settings.retention.failed) == (2 * 86_400, 90 * 86_400)
    app = Redrive("memory://", retention_delivered_days=9)  # what the application says itself wins
    Inbox(app, [Source.github(insecure=True)])
    assert app.settings.retention.delivered == 9 * 86_400
