"""Every outcome has one answer."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.decide import MAX_LOSSES, SUCCEEDED, Failed, Interrupted, Lost, decide, held_back, next_try
from redrive.core.letter import Category, Failure, Status
from redrive.core.moves import MOVES
from redrive.core.policy import LONGEST, RetryPolicy

BOUND = 86_400


@dataclass(frozen=True)
class Tried:
    attempts: int = 1
    losses: int = 0


def failed(
    *, terminal: bool = False, retry_after: float | None = None, category: Category = Category.TRANSIENT
) -> Failed:
    return Failed(
        Failure(
            error_type="ValueError",
            message="boom",
            category=category,
            rule="a test's",
            terminal=terminal,
            retry_after=retry_after,
        )
    )


FLAKY, TERMINAL = failed(), failed(terminal=True)
POLICY = RetryPolicy.exponential(10, cap=30, max_attempts=4, jitter="full")


@pytest.mark.parametrize(
    ("tried", "outcome", "to", "why", "wait", "counts", "loss"),
    [
        (Tried(1), SUCCEEDED, "delivered", "succeeded", 0, True, False),
        (Tried(9), SUCCEEDED, "delivered", "succeeded", 0, True, False),
        (Tried(1), FLAKY, "pending", "backing off", 5, True, False),
        (Tried(2), FLAKY, "pending", "backing off", 10, True, False),
        (Tried(3), FLAKY, "pending", "backing off", 15, True, False),
        (Tried(4), FLAKY, "failed", "exhausted", 0, True, False),
        (Tried(5), FLAKY, "failed", "exhausted", 0, True, False),
        (Tried(1), TERMINAL, "failed", "terminal", 0, True, False),
        (Tried(1), failed(retry_after=60), "pending", "asked to wait", 65, True, False),
        (Tried(4), failed(retry_after=60), "failed", "exhausted", 0, True, False),
        (Tried(1), failed(retry_after=10**9), "pending", "asked to wait", BOUND + 5, True, False),
        (Tried(1), failed(terminal=True, retry_after=60), "failed", "terminal", 0, True, False),
        (Tried(9), Interrupted("shutting down"), "pending", "shutting down", 0, False, False),
        (Tried(9), Interrupted("held by a breaker", 12.0), "pending", "held by a breaker", 12, False, False),
        (Tried(9, 0), Lost(), "pending", "worker lost", 0, False, True),
        (Tried(9, 1), Lost("lease ended"), "pending", "lease ended", 0, False, True),
        (Tried(1, 2), Lost(), "failed", "worker_crashed", 0, False, True),
        (Tried(1, 2), Lost("worker died", had_begun=False), "pending", "worker died", 0, False, False),
    ],
)
def test_each_outcome_has_one_answer(tried, outcome, to, why, wait, counts, loss):
    move = decide(tried, outcome, POLICY, draw=0.5)

    assert (move.to, move.why, move.delay, move.counts, move.loss) == (Status(to), why, wait, counts, loss)


@pytest.mark.parametrize(
    ("age", "why"), [(0, "backing off"), (94, "backing off"), (96, "out of time"), (1e9, "out of time")]
)
def test_a_cycle_that_would_last_too_long_ends_now(age, why):
    policy = RetryPolicy.exponential(10, max_attempts=100, total=100)
    assert decide(Tried(1), FLAKY, policy, 0.5, age=age).why == why


@pytest.mark.parametrize(("hold", "wait"), [(0, 5), (3, 5), (40, 40)])
def test_the_budget_may_only_lengthen_a_wait(hold, wait):
    assert held_back(decide(Tried(1), FLAKY, POLICY, 0.5), hold).delay == wait


def test_a_letter_under_never_waits_for_a_person_after_one_try():
    assert decide(Tried(1), FLAKY, RetryPolicy.NEVER, 0.5).to is Status.FAILED


def test_a_move_keeps_what_explains_it():
    move = decide(Tried(2), FLAKY, POLICY, 0.5)
    assert (move.failure, move.draw, move.policy) == (FLAKY.failure, 0.5, POLICY.text)


def test_the_worker_that_crashed_is_named_in_the_failure():
    move = decide(Tried(1, MAX_LOSSES - 1), Lost("killed by signal 9"), POLICY, 0.5)
    assert (move.failure.terminal, move.failure.fingerprint) == (True, "worker_crashed")
    assert "killed by signal 9" in move.failure.message


DRAWS = st.floats(0, 1, exclude_max=True)
JITTERS = st.sampled_from(["none", "full", "equal", "additive(3)"])
POLICIES = st.builds(
    RetryPolicy.exponential,
    st.floats(0, 60),
    st.floats(60, LONGEST),
    st.floats(1, 100),
    st.integers(1, 10**6),
    JITTERS,
    total=st.none() | st.floats(0, 1e6),
)
FAILURES = st.builds(failed, terminal=st.booleans(), retry_after=st.none() | st.floats(-1, 1e300))
OUTCOMES = st.one_of(
    st.just(SUCCEEDED),
    st.builds(Lost),
    st.builds(Interrupted, wait=st.floats(0, 1_000)),
    FAILURES,
)
STANDINGS = st.builds(Tried, st.integers(1, 10**6), st.integers(0, 5))


@given(STANDINGS, OUTCOMES, POLICIES, DRAWS, st.floats(0, 1e9))
def test_every_outcome_is_a_legal_move_and_the_same_each_time(tried, outcome, policy, draw, age):
    move = decide(tried, outcome, policy, draw, age=age)

    assert (Status.IN_FLIGHT, move.to) in MOVES
    assert move == decide(tried, outcome, policy, draw, age=age)
    assert move.delay >= 0


@given(STANDINGS, FAILURES, POLICIES, DRAWS)
def test_no_wait_is_above_the_cap_and_none_below_a_retry_after(tried, outcome, policy, draw):
    move = decide(tried, outcome, policy, draw)
    floor = min(outcome.failure.retry_after or 0.0, BOUND)

    assert move.delay <= max(policy.cap, floor + policy.first) + policy.span
    assert move.to is Status.FAILED or move.delay >= floor


@given(STANDINGS, FAILURES, POLICIES, DRAWS)
def test_a_letter_is_never_tried_more_often_than_its_policy_allows(tried, outcome, policy, draw):
    move = decide(tried, outcome, policy, draw)
    assert tried.attempts < policy.max_attempts or move.to is Status.FAILED


# ---------------------------------------------------------------------- a policy chosen by the failure

BY_CATEGORY = {
    Category.NETWORK: RetryPolicy.constant(7, max_attempts=3, jitter="none"),
    Category.RESOURCE: RetryPolicy.constant(90, max_attempts=2, jitter="none"),
    Category.VALIDATION: RetryPolicy.NEVER,
}


def choose(failure: Failure) -> RetryPolicy:
    return BY_CATEGORY[failure.category]


@pytest.mark.parametrize(
    ("category", "attempts", "to", "why", "wait"),
    [
        (Category.NETWORK, 1, "pending", "backing off", 7),
        (Category.NETWORK, 2, "pending", "backing off", 7),
        (Category.NETWORK, 3, "failed", "exhausted", 0),
        (Category.RESOURCE, 1, "pending", "backing off", 90),
        (Category.RESOURCE, 2, "failed", "exhausted", 0),
        (Category.VALIDATION, 1, "failed", "exhausted", 0),
        (Category.VALIDATION, 2, "failed", "exhausted", 0),
    ],
)
def test_a_chosen_policy_follows_the_newest_failure(category, attempts, to, why, wait):
    move = decide(Tried(attempts), failed(category=category), choose, 0.5)
    assert (move.to, move.why, move.delay) == (to, why, wait)
    assert move.policy == BY_CATEGORY[category].text


@pytest.mark.parametrize("losses", [0, MAX_LOSSES - 1])
def test_a_loss_is_a_failure_for_the_chooser_too(losses):
    move = decide(Tried(1, losses), Lost(), choose, 0.5)
    assert move.policy == BY_CATEGORY[Category.RESOURCE].text


def test_a_chooser_has_no_say_in_what_did_not_fail():
    def never_asked(failure: Failure) -> RetryPolicy:
        raise AssertionError(failure)

    assert decide(Tried(), SUCCEEDED, never_asked, 0.5).to is Status.DELIVERED
    assert decide(Tried(), Interrupted("shutdown"), never_asked, 0.5).to is Status.PENDING


def test_an_operation_of_our_own_is_repeated_for_ever_and_reported_once_the_policys_tries_are_used_up():
    policy = RetryPolicy.exponential(1, cap=4, max_attempts=3, jitter="none")

    tries = [next_try(failures, policy, 0.5) for failures in range(1, 6)]

    assert [each.delay for each in tries] == [1, 2, 4, 4, 4]
    assert [each.exhausted for each in tries] == [False, False, True, True, True]
