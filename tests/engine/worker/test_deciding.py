"""From outcomes to moves: which policy applies to which letter."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.engine import handlers_for_processes as handlers
from tests.engine.starting import letter, run

from redrive import RetryPolicy
from redrive.core.decide import Failed
from redrive.core.letter import Category, Failure, Status
from redrive.engine.handler import build_handler
from redrive.engine.runners.processes.pool import ProcessEngine
from redrive.engine.worker.deciding import Deciding
from redrive.engine.worker.faults import Faults
from redrive.stores.contract import Claim
from redrive.testing import FakeClock

SHORT, LONG = (RetryPolicy.constant(span, max_attempts=9, jitter="none") for span in (1, 60))


def choose(failure: Failure) -> RetryPolicy:
    return LONG if failure.category is Category.NETWORK else SHORT


def failed(category: Category) -> Failed:
    return Failed(Failure(error_type="OSError", message="down", category=category, rule="a test's"))


def deciding(handler) -> Deciding:
    facts: list = []
    return Deciding({"order": handler}, Faults("w", facts.append), FakeClock())


async def handle(order: dict): ...


CHOOSING = replace(build_handler("order", handle), choose=choose)


@pytest.mark.parametrize(("category", "policy"), [(Category.NETWORK, LONG), (Category.RESOURCE, SHORT)])
def test_a_handler_may_choose_the_policy_by_the_failure(category, policy):
    [(_, move)] = deciding(CHOOSING).moves([(Claim(letter(attempts=1), 1, 0.0), failed(category))])
    assert (move.to, move.delay, move.policy) == (Status.PENDING, policy.first, policy.text)


def test_a_letter_that_brought_its_own_policy_keeps_it():
    own = RetryPolicy.constant(5, max_attempts=9, jitter="none")
    claim = Claim(letter(attempts=1, policy=own.text), 1, 0.0)
    [(_, move)] = deciding(CHOOSING).moves([(claim, failed(Category.NETWORK))])
    assert (move.delay, move.policy) == (5, own.text)


async def test_the_failure_of_a_child_process_is_chosen_for_alike():
    handler = replace(build_handler("order", handlers.raise_connection_error, engine="process"), choose=choose)
    engine = ProcessEngine(1)
    try:
        outcome = await run(engine, handler)
    finally:
        await engine.close(0)
    [(_, move)] = deciding(handler).moves([(Claim(letter(attempts=1), 1, 0.0), outcome)])
    assert (move.failure.category, move.policy) == (Category.NETWORK, LONG.text)
