"""Letters in: receipts, duplicates, due times, refusals."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from redrive import Priority, Redrive, RetryPolicy, Status
from redrive.core.facts import Enqueued
from redrive.core.letter import instant
from redrive.errors import DraftError, LetterNotFound, PolicyError, QueueFull, SettingsError


@pytest.fixture
def got(app):
    """An application with one handler; the orders that it got."""
    orders = []

    @app.handler("order.created")
    async def ship(order: dict):
        orders.append(order["order"])

    return orders


async def test_a_receipt_names_the_letter(app, driven, got):
    async with driven(app) as test:
        receipt = await app.enqueue("order.created", {"order": 17})
        letter = await test.letter(receipt.id)
    assert not receipt.duplicate
    assert (letter.kind, letter.queue, letter.status, letter.attempts) == (
        "order.created", "default", Status.PENDING, 0
    )  # fmt: skip


async def test_a_duplicate_is_reported_and_changes_nothing(app, driven, got):
    async with driven(app) as test:
        first = await app.enqueue("order.created", {"order": 17}, idempotency_key="order-17")
        second = await app.enqueue("order.created", {"order": 18}, idempotency_key="order-17")
        await test.run_until_idle()
        third = await app.enqueue("order.created", {"order": 19}, idempotency_key="order-17")
        await test.run_until_idle()
    assert (second.id, second.duplicate) == (first.id, True)
    assert (third.id, third.duplicate) == (first.id, True)
    assert got == [17]


async def test_an_idempotency_key_is_of_one_queue_and_kind(app, driven, got):
    app.add_handler("order.paid", lambda order: None)
    async with driven(app):
        receipts = [
            await app.enqueue("order.created", {"order": 1}, idempotency_key="k"),
            await app.enqueue("order.paid", {"order": 1}, idempotency_key="k"),
            await app.enqueue("order.created", {"order": 1}, idempotency_key="k", queue="other"),
        ]
    assert [receipt.duplicate for receipt in receipts] == [False, False, False]


async def test_the_same_id_is_a_duplicate(app, driven, got):
    mine = "01890000-0000-7000-8000-000000000001"
    async with driven(app):
        first = await app.enqueue("order.created", {"order": 1}, id=mine)
        again = await app.enqueue("order.created", {"order": 1}, id=mine)
    assert (first.id, first.duplicate, again.id, again.duplicate) == (mine, False, mine, True)


async def test_many_are_kept_together_and_duplicates_within_them_are_found(app, driven, got):
    async with driven(app) as test:
        drafts = [app.draft("order.created", {"order": n}, idempotency_key=f"k{n % 3}") for n in range(5)]
        receipts = await app.enqueue_many(drafts)
        assert [receipt.duplicate for receipt in receipts] == [False, False, False, True, True]
        assert len(await test.letters()) == 3
        assert await app.enqueue_many([]) == []


async def test_a_delayed_letter_does_not_run_before(app, driven, got, clock):
    async with driven(app) as test:
        await app.enqueue("order.created", {"order": 17}, delay=60)
        clock.advance(59)
        await test.tick()
        assert got == []
        clock.advance(1)
        await test.tick()
        assert got == [17]


async def test_a_letter_with_a_due_time_does_not_run_before(app, driven, got, clock):
    async with driven(app) as test:
        due = instant(clock.wall_us()) + timedelta(hours=2)
        receipt = await app.enqueue("order.created", {"order": 17}, due_at=due)
        assert (await test.letter(receipt.id)).due_at == due
        clock.advance(7_199)
        await test.tick()
        assert got == []
        clock.advance(1)
        await test.tick()
        assert got == [17]


async def test_a_letter_that_was_due_long_ago_runs_at_once(app, driven, got, clock):
    async with driven(app) as test:
        await app.enqueue("order.created", {"order": 17}, due_at=instant(clock.wall_us()) - timedelta(days=1))
        await test.tick()
    assert got == [17]


async def test_a_due_time_without_a_zone_is_refused(app, driven, got):
    async with driven(app):
        with pytest.raises(DraftError, match="time zone"):
            await app.enqueue("order.created", {}, due_at=datetime(2026, 1, 1))  # noqa: DTZ001 - the mistake itself


async def test_a_priority_may_be_written_as_a_word(app, driven, got):
    async with driven(app) as test:
        receipt = await app.enqueue("order.created", {"order": 1}, priority="high")
        assert (await test.letter(receipt.id)).priority is Priority.HIGH
        with pytest.raises(DraftError, match="high, medium or low"):
            await app.enqueue("order.created", {"order": 1}, priority="urgent")


async def test_what_the_sender_says_of_a_letter_is_kept(app, driven, got):
    said = {
        "key": "customer-9", "idempotency_key": "order-17", "metadata": {"by": "ana", "deep": [1, {"a": None}]},
        "headers": (("trace", b"\x00\xff"), ("trace", b"2")), "tenant": "acme", "origin": "webhook:stripe",
    }  # fmt: skip
    async with driven(app) as test:
        receipt = await app.enqueue("order.created", {"order": 1}, **said)
        letter = await test.letter(receipt.id)
    assert {name: getattr(letter, name) for name in said} == said


async def test_a_full_queue_refuses_loudly_and_takes_none_of_the_call(app, driven, got):
    app.queue("default", max_size=3)
    async with driven(app) as test:
        await app.enqueue("order.created", {"order": 1})
        with pytest.raises(QueueFull, match="maximum of 3"):
            await app.enqueue_many([app.draft("order.created", {"order": n}) for n in (2, 3, 4)])
        assert len(await test.letters()) == 1
        await app.enqueue_many([app.draft("order.created", {"order": n}) for n in (5, 6)])
        await test.run_until_idle()
        await app.enqueue("order.created", {"order": 7})  # finished letters take no room
        await test.run_until_idle()
    assert got == [1, 5, 6, 7]


async def test_a_full_queue_tells_nobody_that_letters_were_accepted(app, driven, got):
    app.queue("default", max_size=1)
    async with driven(app) as test:
        await app.enqueue("order.created", {"order": 1})
        told = len(test.facts)
        with pytest.raises(QueueFull):
            await app.enqueue("order.created", {"order": 2})
        assert len(test.facts) == told


async def test_a_duplicate_of_a_kept_letter_is_no_refusal_in_a_full_queue(app, driven, got):
    app.queue("default", max_size=1)
    async with driven(app):
        first = await app.enqueue("order.created", {"order": 1}, idempotency_key="k")
        again = await app.enqueue("order.created", {"order": 1}, idempotency_key="k")
    assert (again.id, again.duplicate) == (first.id, True)


async def test_accepted_letters_and_duplicates_are_announced(app, driven, got):
    async with driven(app) as test:
        await app.enqueue_many([app.draft("order.created", {"order": n}, idempotency_key="k") for n in (1, 2)])
        assert test.facts == [Enqueued(queue="default", kind="order.created", count=2, duplicates=1)]


async def test_a_letter_that_waits_for_an_unknown_one_is_refused(app, driven, got):
    async with driven(app) as test:
        with pytest.raises(LetterNotFound):
            await app.enqueue("order.created", {}, after=["01890000-0000-7000-8000-000000000001"])
        assert await test.letters() == []


@pytest.mark.parametrize(
    "policy",
    [
        "sometimes",
        "exponential:max_attempts=0",
        RetryPolicy.custom(lambda attempt: attempt * 3.0),
        RetryPolicy.immediate(terminal_errors=(KeyError,)),
    ],
)
async def test_a_policy_that_a_letter_cannot_carry_is_refused_and_not_forgotten(app, driven, got, policy):
    async with driven(app) as test:
        with pytest.raises(PolicyError):
            await app.enqueue("order.created", {"order": 1}, policy=policy)
        assert await test.letters() == []


@pytest.mark.parametrize("limit", ["concurrency", "max_size", "rate", "max_in_flight"])
def test_a_queue_without_room_is_refused(app, limit):
    with pytest.raises(SettingsError, match=f"{limit} of queue 'mails' is 0"):
        app.queue("mails", **{limit: 0})


def test_settings_that_make_no_sense_are_reported_together():
    with pytest.raises(SettingsError) as told:
        Redrive("memory://", concurrency=0, lease_seconds=-1, colour="red")
    assert len(told.value.problems) == 3


def test_an_unknown_store_is_refused_without_its_password():
    with pytest.raises(SettingsError) as told:
        Redrive("mongodb://ana:hunter2@host/letters")
    assert "hunter2" not in str(told.value)


def test_the_url_comes_from_the_environment_when_not_given(monkeypatch):
    monkeypatch.setenv("REDRIVE_URL", "memory://")
    assert Redrive().settings.url == "memory://"
    assert Redrive("sqlite:///other.db").settings.url == "sqlite:///other.db"


@pytest.mark.parametrize(
    "limits", [{"concurrency": 1.5}, {"rate": float("inf")}, {"max_size": 9.5}, {"rate": "1"}, {"max_in_flight": True}]
)
def test_a_limit_that_is_no_number_is_refused(app, limits):
    with pytest.raises(SettingsError, match=f"{next(iter(limits))} of queue 'mails' is .* above 0"):
        app.queue("mails", **limits)
