"""Where a letter failed: file, line and source, in `show`, `explain`, `groups` and the log, whoever ran it."""

from __future__ import annotations

import logging

import pytest
import structlog
from tests.app.far_away import divide

from redrive import RetryPolicy
from redrive.core.facts import Died
from redrive.desk.act.acts import act
from redrive.desk.look import views
from redrive.desk.look.explain import explain
from redrive.desk.look.group import groups

PLACE = f"tests.app.far_away:divide:{divide.__code__.co_firstlineno + 1}"
LINE = 'return order["total"] / order["count"]'
ORDER = {"total": 4711, "count": 0}


async def divide_soon(order: dict):
    return divide(order)


@pytest.fixture(params=["async", "thread", "process"])
def failing(request, app):
    function = divide_soon if request.param == "async" else divide
    app.add_handler("order", function, engine=request.param, policy=RetryPolicy.constant(1, max_attempts=2))
    return app


async def test_a_dead_letter_shows_file_line_and_source(failing, driven):
    async with driven(failing) as test:
        receipt = await failing.enqueue("order", ORDER)
        await test.run_until_idle()
        letter = await test.letter(receipt.id)
        sheet, why = views.sheet(letter), explain(letter)
        [group] = (await groups(test.store)).groups
        [died] = [fact for fact in test.facts if isinstance(fact, Died)]
    for told in (sheet.traceback, why.traceback, died.traceback):
        assert LINE in told
        assert told.endswith("ZeroDivisionError: division by zero")
        assert "4711" not in told
    assert (sheet.place, sheet.tries[0].place, group.place, died.place) == (PLACE,) * 4
    assert any(f"ZeroDivisionError at {PLACE} is" in line for line in why.story)
    assert [bool(one.traceback) for one in letter.tries] == [False, True]


async def test_an_ended_cycle_keeps_its_own(app, driven):
    app.add_handler("order", divide_soon, policy=RetryPolicy.NEVER)
    async with driven(app) as test:
        receipt = await app.enqueue("order", ORDER)
        await test.run_until_idle()
        await act(test.store, "replay", [receipt.id], by="ana", reason="again")
        sheet = views.sheet(await test.letter(receipt.id))
    assert (sheet.traceback, sheet.place) == ("", "")
    assert LINE in sheet.failure_history[0].traceback


async def test_a_try_without_a_place_leaves_the_last_traceback(app, driven, clock):
    fails = iter([divide_soon, refuse])

    @app.handler("order", policy=RetryPolicy.constant(1, max_attempts=2), succeeded=lambda result: False)
    async def ship(order: dict):
        return await next(fails)(order)

    async with driven(app) as test:
        receipt = await app.enqueue("order", ORDER)
        await test.run_until_idle()
        letter = await test.letter(receipt.id)
    assert letter.error_type == "ResultRefused"
    assert LINE in views.traceback_of(letter.tries)


async def refuse(order: dict) -> None:
    return None


async def test_the_log_line_of_a_dead_letter_is_followed_by_it(app, in_memory, caplog):
    app.add_handler("order", divide_soon, policy=RetryPolicy.NEVER)
    structlog.reset_defaults()
    with caplog.at_level(logging.ERROR, logger="redrive"):
        async with in_memory(app) as test:
            await app.enqueue("order", ORDER)
            await test.run_until_idle()
    [line] = [record.getMessage() for record in caplog.records if "redrive.letter.died" in record.getMessage()]
    head, *rest = line.splitlines()
    assert f"place='{PLACE}'" in head
    assert rest[0] == "Traceback (most recent call last):"
    assert f"    {LINE}" in rest
