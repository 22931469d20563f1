"""What a handler may say of itself, and what becomes of a letter when it speaks up."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from itertools import pairwise

import msgspec
import pydantic
import pytest

from redrive import Reject, RetryAfter, RetryPolicy, Status, TerminalHandlerError
from redrive.errors import HandlerError

TWICE = RetryPolicy.constant(10, max_attempts=2)


@pytest.mark.parametrize("error", [Reject, TerminalHandlerError])
async def test_reject_dead_letters_at_once(app, driven, error):
    @app.handler("order.created")
    async def ship(order: dict):
        raise error("never heard of it")

    async with driven(app) as test:
        receipt = await app.enqueue("order.created", {})
        await test.run_until_idle()
        letter = await test.letter(receipt.id)
    assert (letter.status, letter.attempts, letter.why) == (Status.FAILED, 1, "terminal")
    assert letter.last_error == "never heard of it"


async def test_retry_after_is_a_floor_that_jitter_never_undercuts(app, driven, clock):
    tries = []

    @app.handler("order.created", policy=RetryPolicy.exponential(first=1, cap=2, max_attempts=2))
    async def ship(order: dict):
        tries.append(clock.monotonic())
        if len(tries) == 1:
            raise RetryAfter(100)

    clock.draws = [0.0]
    async with driven(app) as test:
        await app.enqueue("order.created", {})
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 1
    assert tries[1] - tries[0] >= 100


async def test_retry_after_still_counts_the_attempts(app, driven):
    @app.handler("order.created", policy=TWICE)
    async def ship(order: dict):
        raise RetryAfter(1)

    async with driven(app) as test:
        receipt = await app.enqueue("order.created", {})
        await test.run_until_idle()
        assert (await test.letter(receipt.id)).attempts == 2


async def test_a_result_that_succeeded_refuses_is_a_failure(app, driven):
    @app.handler("order.created", policy=TWICE, succeeded=lambda status: status == 200)
    async def ship(order: dict):
        return order["status"]

    async with driven(app) as test:
        good = await app.enqueue("order.created", {"status": 200})
        bad = await app.enqueue("order.created", {"status": 500})
        await test.run_until_idle()
        assert (await test.letter(good.id)).status is Status.DELIVERED
        refused = await test.letter(bad.id)
    assert (refused.status, refused.attempts) == (Status.FAILED, 2)


async def test_a_predicate_that_raises_is_a_failure_too(app, driven):
    @app.handler("order.created", policy=TWICE, succeeded=lambda result: result["ok"])
    async def ship(order: dict):
        return None

    async with driven(app) as test:
        await app.enqueue("order.created", {})
        await test.run_until_idle()
        assert len(await test.letters("status:failed type:*TypeError")) == 1


async def test_terminal_errors_are_not_tried_again_and_others_are(app, driven):
    @app.handler("order.created", policy=TWICE, terminal_errors=(KeyError, "builtins.ZeroDivisionError"))
    async def ship(order: dict):
        raise {"key": KeyError, "zero": ZeroDivisionError, "other": OSError}[order["raise"]]("so")

    async with driven(app) as test:
        ids = {name: (await app.enqueue("order.created", {"raise": name})).id for name in ("key", "zero", "other")}
        await test.run_until_idle()
        attempts = {name: (await test.letter(each)).attempts for name, each in ids.items()}
    assert attempts == {"key": 1, "zero": 1, "other": 2}


async def test_each_handler_keeps_its_own_policy(app, driven):
    async def fail(order: dict):
        raise OSError("down")

    app.add_handler("once", fail, policy=RetryPolicy.NEVER)
    app.add_handler("thrice", fail, policy=RetryPolicy.immediate(max_attempts=3))
    app.add_handler("default", fail)
    async with driven(app) as test:
        for kind in ("once", "thrice", "default"):
            await app.enqueue(kind, {})
        await test.run_until_idle()
        attempts = {letter.kind: letter.attempts for letter in await test.letters("status:failed")}
    assert attempts == {"once": 1, "thrice": 3, "default": 5}


async def test_a_policy_given_as_text_is_the_handlers(app, driven):
    @app.handler("order.created", policy="constant:delay=5,max_attempts=2")
    async def ship(order: dict):
        raise OSError("down")

    async with driven(app) as test:
        await app.enqueue("order.created", {})
        await test.run_until_idle()
        assert [letter.attempts for letter in await test.letters("status:failed")] == [2]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("polcy", "polcy is no option; did you mean policy"),
        ("timout", "timout is no option; did you mean timeout"),
        ("retries", "retries is no option; it belongs to the policy"),
    ],
)
def test_an_option_that_nobody_knows_is_refused_with_what_was_meant(app, option, said):
    with pytest.raises(HandlerError, match=said):
        app.add_handler("order.created", lambda order: None, **{option: 3})
    assert not app.handlers


def test_the_decorator_without_a_kind_is_refused(app):
    with pytest.raises(HandlerError, match="name its kind"):

        @app.handler
        def ship(order: dict): ...


async def test_retries_come_when_the_policy_says(app, driven, clock):
    tries = []

    @app.handler("order.created", policy=RetryPolicy.exponential(first=10, cap=25, max_attempts=4, jitter="none"))
    async def ship(order: dict):
        tries.append(clock.monotonic())
        raise OSError("down")

    async with driven(app) as test:
        await app.enqueue("order.created", {})
        await test.run_until_idle()
    assert [after - before for before, after in pairwise(tries)] == [10, 20, 25]


async def test_jitter_draws_from_the_clocks_dice(app, driven, clock):
    @app.handler("order.created", policy=RetryPolicy.exponential(first=10, cap=100, max_attempts=3))
    async def ship(order: dict):
        raise OSError("down")

    clock.draws = [0.25, 0.5]
    async with driven(app) as test:
        receipt = await app.enqueue("order.created", {})
        await test.run_until_idle()
        tries = (await test.letter(receipt.id)).tries
    assert [each.delay for each in tries[:2]] == [2.5, 10.0]


async def test_a_cycle_that_would_last_too_long_ends(app, driven):
    @app.handler("order.created", policy=RetryPolicy.constant(40, max_attempts=9, total=100))
    async def ship(order: dict):
        raise OSError("down")

    async with driven(app) as test:
        receipt = await app.enqueue("order.created", {})
        await test.run_until_idle()
        letter = await test.letter(receipt.id)
    assert (letter.status, letter.attempts, letter.why) == (Status.FAILED, 3, "out of time")


async def test_the_letters_own_policy_wins_over_its_handlers(app, driven):
    @app.handler("order.created", policy=RetryPolicy.immediate(max_attempts=7))
    async def ship(order: dict):
        raise OSError("down")

    async with driven(app) as test:
        await app.enqueue("order.created", {}, policy=RetryPolicy.immediate(max_attempts=2))
        await app.enqueue("order.created", {}, policy="constant:delay=60,max_attempts=3")
        await app.enqueue("order.created", {})
        await test.run_until_idle()
        assert sorted(letter.attempts for letter in await test.letters("status:failed")) == [2, 3, 7]


async def test_a_broken_handler_stops_nobody_else(app, driven):
    class Hostile(Exception):
        def __str__(self):
            raise RuntimeError("no text for you")

    async def fail(order: dict):
        raise {"hostile": Hostile(), "exit": SystemExit(3), "huge": OSError("x" * 5_000_000)}[order["how"]]

    app.add_handler("bad", fail, policy=RetryPolicy.NEVER)
    app.add_handler("good", lambda order: None)
    async with driven(app) as test:
        for how in ("hostile", "exit", "huge"):
            await app.enqueue("bad", {"how": how})
            await app.enqueue("good", {})
        await test.run_until_idle()
        assert len(await test.letters("kind:good status:delivered")) == 3
        dead = await test.letters("kind:bad status:failed")
    assert len(dead) == 3
    assert all(len(letter.last_error) < 100_000 for letter in dead)


async def test_due_times_are_the_stores(app, driven, clock):
    @app.handler("order.created", policy=RetryPolicy.constant(60))
    async def ship(order: dict):
        raise OSError("down")

    async with driven(app) as test:
        receipt = await app.enqueue("order.created", {})
        before = await test.letter(receipt.id)
        await test.tick()
        after = await test.letter(receipt.id)
    assert (after.status, after.due_at - before.due_at) == (Status.PENDING, timedelta(seconds=60))


class Order(pydantic.BaseModel):
    order: int


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (lambda: Order.model_validate({"order": "many"}), 1),
        (lambda: msgspec.json.decode(b'"x"', type=int), 1),
        (lambda: raised(sqlite3.IntegrityError("UNIQUE")), 1),
        (lambda: raised(ValueError("of my own code")), 2),
        (lambda: int("x"), 2),
        (lambda: raised(KeyError("x")), 2),
    ],
    ids=["pydantic", "msgspec", "integrity", "own value error", "int", "key"],
)
async def test_what_is_terminal_by_default_is_so_on_every_store(app, driven, error, attempts):
    @app.handler("order.created", policy=TWICE)
    async def ship(order: dict):
        error()

    async with driven(app) as test:
        await app.enqueue("order.created", {})
        await test.run_until_idle()
        (letter,) = await test.letters("status:failed")
    assert letter.attempts == attempts


def raised(error: Exception) -> None:
    raise error
