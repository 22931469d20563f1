"""Which fact a settled move becomes."""

from __future__ import annotations

import pytest
from tests.engine.starting import letter

from redrive.core.facts import ClaimLost, Delivered, Died, GivenBack, Rescued, Retried
from redrive.core.letter import Category, Failure, Status
from redrive.core.moves import Move
from redrive.engine.worker.facts import facts_of
from redrive.stores.contract import Claim

FAILURE = Failure(
    error_type="OSError", message="down", category=Category.NETWORK, rule="errno", fingerprint="v1-a", retry_after=None
)
CLAIM = Claim(letter(attempts=2, losses=1, worker="w1"), 1, 0.0)


@pytest.mark.parametrize(
    ("move", "kind"),
    [
        (Move(Status.DELIVERED, "succeeded"), Delivered),
        (Move(Status.PENDING, "backing off", delay=4, failure=FAILURE), Retried),
        (Move(Status.FAILED, "exhausted", failure=FAILURE), Died),
        (Move(Status.PENDING, "shutdown", counts=False), GivenBack),
        (Move(Status.PENDING, "worker lost", counts=False, loss=True), Rescued),
        (Move(Status.FAILED, "worker_crashed", counts=False, loss=True, failure=FAILURE), Died),
    ],
)
def test_each_move_has_one_fact(move, kind):
    assert [type(fact) for fact in facts_of([(CLAIM, move)], [True])] == [kind]


def test_a_move_that_was_refused_is_a_lost_claim_whatever_it_was():
    for move in (Move(Status.DELIVERED, "succeeded"), Move(Status.FAILED, "exhausted", failure=FAILURE)):
        [fact] = facts_of([(CLAIM, move)], [False])
        assert fact == ClaimLost(id="a", queue="default", kind="order", worker="w1")


def test_deliveries_of_a_batch_are_one_fact_a_kind():
    other = Claim(letter(), 2, 0.0)
    moves = [(claim, Move(Status.DELIVERED, "succeeded")) for claim in (CLAIM, other, other)]
    facts = list(facts_of(moves, [True, True, False]))
    assert [(type(fact), getattr(fact, "count", None)) for fact in facts] == [(Delivered, 2), (ClaimLost, None)]


def test_a_retry_says_what_failed_and_how_long_it_waits():
    [fact] = facts_of([(CLAIM, Move(Status.PENDING, "backing off", delay=4, failure=FAILURE))], [True])
    assert (fact.attempts, fact.delay, fact.error_type, fact.category, fact.rule) == (
        2,
        4,
        "OSError",
        "network",
        "errno",
    )


def test_a_rescue_counts_the_loss_it_is():
    [fact] = facts_of([(CLAIM, Move(Status.PENDING, "worker lost", counts=False, loss=True))], [True])
    assert (fact.losses, fact.worker) == (2, "w1")


def test_nothing_settled_is_nothing_told():
    assert list(facts_of([], [])) == []
