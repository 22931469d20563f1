"""Backoff functions by name."""

from __future__ import annotations

import pytest

from redrive.core.facts import BackoffUnknown
from redrive.errors import HandlerError


async def handle(order: dict) -> None:
    """Do nothing."""


async def test_a_letter_waits_what_the_function_that_it_names_says(app, driven):
    @app.handler("order")
    async def handle(order: dict):
        raise ConnectionError("no")

    app.backoff("payments", lambda attempt: 7.0 * attempt)
    async with driven(app) as here:
        sent = await app.enqueue("order", {}, policy="custom:name=payments,max_attempts=3")
        await here.tick()
        letter = await app.store.get(sent.id)
        assert (letter.tries[-1].delay, letter.tries[-1].policy) == (7.0, letter.policy)
        await here.run_until_idle()
        assert [line.delay for line in (await app.store.get(sent.id)).tries] == [7.0, 14.0, 0.0]


async def test_a_handler_may_name_a_function_too(app, driven):
    @app.handler("order", policy="custom:name=payments,max_attempts=2")
    async def handle(order: dict):
        raise ConnectionError("no")

    app.backoff("payments", lambda _: 3.0)
    async with driven(app) as here:
        sent = await app.enqueue("order", {})
        await here.run_until_idle()
        assert [line.delay for line in (await app.store.get(sent.id)).tries] == [3.0, 0.0]


async def test_a_worker_that_does_not_know_the_name_leaves_the_letter_pending_and_says_so_once(app, driven):
    ran, facts = [], []

    @app.handler("order")
    async def note(order: dict):
        ran.append(order["order"])

    app.listen(facts.append)
    async with driven(app) as here:
        sent = [await app.enqueue("order", {"order": n}, policy="custom:name=payments") for n in range(3)]
        await app.enqueue("order", {"order": 9})
        for _ in range(3):
            await here.tick()
            here.clock.advance(31)
        letters = [await app.store.get(each.id) for each in sent]
        assert ran == [9]
        assert {(letter.status, letter.attempts) for letter in letters} == {("pending", 0)}
        assert letters[0].why == "its backoff function 'payments' is not registered in this worker"
        assert [fact.backoff for fact in facts if isinstance(fact, BackoffUnknown)] == ["payments"]
        app.backoff("payments", lambda _: 1.0)
        here.clock.advance(31)
        await here.run_until_idle()
        assert sorted(ran) == [0, 1, 2, 9]


def test_a_worker_whose_handler_names_an_unknown_function_does_not_start(app):
    app.add_handler("order", handle, policy="custom:name=payments")
    with pytest.raises(HandlerError, match=r"app\.backoff\('payments', function\)"):
        app.parts()
