"""Suspects: which claimed letter runs alone, and how long it may wait for that."""

from __future__ import annotations

import pytest
from tests.engine.starting import letter

from redrive.engine.handler import build_handler
from redrive.engine.worker.suspects import Suspects
from redrive.stores.contract import Claim
from redrive.testing import FakeClock


async def on_loop(order: dict): ...


def somewhere(order: dict): ...


@pytest.fixture
def clock():
    return FakeClock()


def suspects(clock: FakeClock, engine: str = "async") -> Suspects:
    function = on_loop if engine == "async" else somewhere
    return Suspects({"order": build_handler("order", function, engine=engine)}, clock)


def claims(*losses: int) -> list[Claim]:
    return [Claim(letter(losses=count), ref, 0.0) for ref, count in enumerate(losses)]


def test_the_first_letter_with_a_loss_waits_to_run_alone(clock):
    found, came = suspects(clock), claims(0, 1, 2)
    assert found.found_in(came) is came[1]
    assert (found.waiting, found.running, found.any) == (came[1], None, True)
    assert found.begin() is came[1]
    assert (found.waiting, found.running, found.any) == (None, came[1], True)


def test_letters_without_a_loss_are_no_suspects(clock):
    found = suspects(clock)
    assert found.found_in(claims(0, 0)) is None
    assert not found.any


@pytest.mark.parametrize(("engine", "endangers"), [("async", True), ("thread", True), ("process", False)])
def test_a_letter_in_a_process_of_its_own_endangers_no_other(clock, engine, endangers):
    assert (suspects(clock, engine).found_in(claims(1)) is not None) == endangers


def test_after_a_suspect_one_letter_is_claimed_at_a_time_until_a_claim_brings_none(clock):
    found = suspects(clock)
    assert found.limit is None
    found.found_in(claims(1))
    found.drop()
    assert found.limit == 1
    found.found_in([])  # says nothing
    assert found.limit == 1
    found.found_in(claims(0))
    assert found.limit is None


@pytest.mark.parametrize(
    ("losses", "held", "engine", "had_not_begun"),
    [(1, 2, "async", True), (2, 9, "thread", True), (1, 1, "async", False), (0, 2, "async", False),
     (1, 2, "process", False)],
)  # fmt: skip
def test_a_suspect_that_its_dead_worker_held_beside_others_had_not_begun(clock, losses, held, engine, had_not_begun):
    [claim] = claims(losses)
    assert suspects(clock, engine).had_not_begun(claim, held) == had_not_begun


def test_whether_a_letter_of_an_unknown_kind_had_begun_is_not_known(clock):
    assert not Suspects({}, clock).had_not_begun(claims(1)[0], 2)


def test_it_waits_two_seconds_for_the_others_to_end(clock):
    found, [suspect] = suspects(clock), claims(1)
    found.found_in([suspect])
    clock.advance(2.0)
    assert found.out_of_patience() is None
    assert found.waiting is suspect
    clock.advance(0.1)
    assert found.out_of_patience() is suspect
    assert not found.any
