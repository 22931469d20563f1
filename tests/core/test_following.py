"""Which policy a letter has after a newer failure elsewhere, as a rule."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.stores.samples import draft, failure

from redrive.core import changes, following
from redrive.core.decide import MAX_LOSSES
from redrive.core.following import adjusted, follows, is_never, move_after, used_up
from redrive.core.letter import Category, Status
from redrive.core.policy import RetryPolicy

FOLLOWS = ((following.CHOICE, b"category"), (following.RETRIES, b"2"))
BUSY = failure("disk full", category=Category.RESOURCE)


def newer(**fields):
    return draft("b", failure=BUSY, retry=True, idempotency_key="wf", again=True, **fields)


def waiting(headers=FOLLOWS, **fields):
    return replace(changes.accepted(draft("a", headers=headers, idempotency_key="wf"), 1), **fields)


@pytest.mark.parametrize(("attempts", "to", "delay"), [(0, "pending", 300), (1, "pending", 300), (2, "pending", 600)])
def test_the_wait_is_as_if_the_last_run_had_failed_so(attempts, to, delay):
    move = move_after(waiting(attempts=attempts), newer())
    assert (move.to, move.delay, move.policy) == (
        to,
        delay,
        RetryPolicy.LINEAR.text.replace("attempts=4", "attempts=3"),
    )


def test_without_a_try_left_it_is_dead():
    move = move_after(waiting(attempts=3), newer())
    assert (move.to, move.why) == (Status.FAILED, "exhausted")


def test_a_failure_that_can_never_heal_is_left_to_a_person():
    hopeless = replace(newer(), failure=replace(BUSY, terminal=True))
    assert move_after(waiting(attempts=1), hopeless).policy == "never"


def test_the_draw_decides_within_the_jitter():
    headers = (*FOLLOWS, (following.JITTER, b"full"))
    assert move_after(waiting(headers, attempts=1), newer(draw=0.5)).delay == 150


def test_a_letter_that_killed_its_workers_begins_a_new_cycle():
    dead = waiting(status=Status.FAILED, applied_policy="never", attempts=1)
    assert move_after(dead, newer()).to is Status.PENDING
    assert move_after(replace(dead, losses=MAX_LOSSES), newer()) is None


@pytest.mark.parametrize("status", [Status.IN_FLIGHT, Status.DELIVERED, Status.ARCHIVED])
def test_a_letter_that_runs_or_is_over_is_not_changed(status):
    assert move_after(waiting(status=status, attempts=1), newer()) is None


def test_a_letter_that_says_nothing_of_it_keeps_its_policy():
    assert follows(()) is None
    assert move_after(waiting(headers=((following.RETRIES, b"2"),), attempts=1), newer()) is None


def test_a_letter_that_waits_for_a_person_by_its_callers_policy_goes_on_waiting():
    dead = waiting(headers=(), status=Status.FAILED, policy="never", applied_policy="never", attempts=1)
    assert (move_after(dead, newer()).to, move_after(dead, newer()).policy) == (Status.FAILED, "never")
    assert move_after(replace(dead, policy="linear", applied_policy="linear"), newer()) is None  # its tries are used up


def test_never_has_no_retries_and_immediate_no_jitter():
    assert adjusted(RetryPolicy.NEVER, 5, "full") == RetryPolicy.NEVER
    assert adjusted(RetryPolicy.IMMEDIATE, 5, "full").jitter == RetryPolicy.IMMEDIATE.jitter
    assert adjusted(RetryPolicy.LINEAR, None, "none") == RetryPolicy.LINEAR


def test_only_a_dead_letter_that_waits_for_nobody_is_used_up():
    counted = newer(counters="wf")
    assert used_up(counted, Status.FAILED, "linear") == {"exhausted": 1}
    assert used_up(newer(), Status.FAILED, "linear") == {}
    assert used_up(counted, Status.PENDING, "linear") == {}
    assert used_up(counted, Status.FAILED, "never") == {}
    assert is_never(None)
    assert not is_never("a word of a newer version")
