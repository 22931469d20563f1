from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.desk.conftest import POLICY, failure

from redrive.core.changes import line_of, logged
from redrive.core.decide import Failed, Lost, decide, held_back
from redrive.core.letter import Category, Letter, Status
from redrive.core.policy import RetryPolicy
from redrive.desk.act.acts import act
from redrive.desk.desk import Desk
from redrive.desk.look import inspect
from redrive.desk.look.explain import explain, explained, what_if
from redrive.stores.contract import Want, WorkerBeat


async def run(mill, outcome, policy=POLICY, draw=0.5, hold=0.0):
    """Run the letter once, as a worker would."""
    [claim] = await mill.store.claim([Want("default", ("order.created",), 1)], lease=60, worker="w1")
    move = held_back(decide(claim, outcome, policy, draw, age=claim.age), hold)
    await mill.store.settle([(claim, move)])
    mill.clock.advance(move.delay)
    return move


async def exhausted(mill, policy=POLICY):
    letter_id = await mill.pending()
    while (await run(mill, Failed(failure()), policy)).to is Status.PENDING:
        pass
    return await inspect.show(mill.store, letter_id)


async def test_every_delay_is_shown_before_the_cap_after_it_and_as_it_was(mill):
    told = explain(await exhausted(mill))

    waits = [(one.attempt, one.wait, one.capped, one.delay) for one in told.tries]
    assert waits == [(1, 10, 10, 10), (2, 20, 20, 20), (3, 40, 25, 25), (4, None, None, 0)]
    assert (told.status, told.why, told.policy) == ("failed", "exhausted", POLICY.text)


async def test_jitter_shows_as_the_draw_that_was_made(mill):
    policy = RetryPolicy.exponential(first=10, cap=25, max_attempts=2, jitter="full")

    [first, _] = explain(await exhausted(mill, policy)).tries

    assert (first.wait, first.draw, first.delay) == (10, 0.5, 5)


async def test_the_rule_that_judged_each_try_is_named(mill):
    told = explain(await exhausted(mill))

    assert {one.rule for one in told.tries} == {"unknown errors are transient"}
    assert any("ValueError is transient by rule: unknown errors are transient" in line for line in told.story)


async def test_a_retry_after_and_a_spent_budget_are_told_apart(mill):
    letter_id = await mill.pending()
    await run(mill, Failed(failure(retry_after=99.0)))
    await run(mill, Failed(failure()), hold=70.0)

    asked, held = explain(await inspect.show(mill.store, letter_id)).tries

    assert (asked.delay, "Retry-After" in asked.note) == (99, True)
    assert (held.delay, "budget" in held.note) == (70, True)


async def test_a_lost_worker_does_not_count_against_the_letter(mill):
    letter_id = await mill.pending()
    await run(mill, Lost())

    told = explain(await inspect.show(mill.store, letter_id))

    assert (told.attempts, told.losses) == (0, 1)
    assert any("worker was lost" in line for line in told.story)


async def test_a_letter_that_never_ran_is_explained_too(mill):
    letter_id = await mill.pending()

    told = explain(await inspect.show(mill.store, letter_id))

    assert (told.tries, told.policy_source) == ([], "no policy was asked yet")


async def test_a_pending_letter_is_explained_by_what_it_waits_for(mill):
    letter_id = await mill.pending(delay=3_540)

    told = await explained(mill.store, letter_id)

    assert told.story[:3] == [
        "pending because: enqueued",
        "no live worker takes order.created from queue default",
        "due in 59 min",
    ]
    assert [(hold.cause, hold.seconds) for hold in told.holds] == [("worker", None), ("due", 3_540.0)]


async def test_a_pending_letter_that_nothing_holds_says_that_it_waits_for_room(mill):
    letter_id = await mill.pending()
    beat = WorkerBeat(name="w", kinds=("order.created",), queues=("default",))
    await mill.store.extend(beat, [], lease=60)

    told = await explained(mill.store, letter_id)

    assert told.story[1] == "nothing holds it: it runs as soon as a worker has room"


async def test_a_custom_policy_is_explained_as_far_as_it_can_be(mill):
    policy = RetryPolicy.custom(lambda _: 3.0, max_attempts=2)

    [first, _] = explain(await exhausted(mill, policy)).tries

    assert (first.delay, first.wait, first.note) == (3, None, "the policy cannot be computed here")


async def test_what_if_repeats_what_happened_when_the_policy_is_the_same(mill):
    letter = await exhausted(mill)

    answer = what_if(letter, POLICY)

    assert [one.delay for one in answer.tries] == [one.delay for one in letter.tries]
    assert answer.ends == "failed (exhausted) after 4 tries and 55 s of waiting"
    assert not any(one.assumed for one in answer.tries)


async def test_what_if_supposes_that_further_tries_fail_alike(mill):
    letter = await exhausted(mill)

    answer = what_if(letter, RetryPolicy.parse("exponential:first=1,max_attempts=8,jitter=full"))

    assert len(answer.tries) == 8
    assert [one.assumed for one in answer.tries] == [False] * 4 + [True] * 4
    assert (answer.least, answer.most) == (0.0, pytest.approx(127.0))


async def test_a_terminal_error_stays_terminal_whatever_the_policy(mill):
    letter_id = await mill.pending()
    await run(mill, Failed(failure(terminal=True)))

    answer = what_if(await inspect.show(mill.store, letter_id), RetryPolicy.exponential(max_attempts=9))

    assert [(one.to, one.why) for one in answer.tries] == [("failed", "terminal")]


async def test_an_endless_policy_is_cut_and_says_so(mill):
    letter = await exhausted(mill)

    answer = what_if(letter, RetryPolicy.immediate(max_attempts=10**9))

    assert (len(answer.tries), answer.more) == (100, True)


async def test_a_replayed_letter_is_judged_by_its_last_cycle(mill):
    letter = await exhausted(mill)
    await act(mill.store, "replay", [letter.id], by="ana")

    answer = await Desk(mill.store).what_if(letter.id, "constant:delay=2,max_attempts=4")

    assert [one.error_type for one in answer.tries] == ["ValueError"] * 4
    assert answer.total == 6


async def test_explanations_are_json(mill):
    letter = await exhausted(mill)

    told = msgspec.json.decode(msgspec.json.encode(explain(letter)))

    assert list(told) == [
        "id", "status", "why", "policy", "policy_source", "attempts", "losses", "cycles", "tries", "story",
        "holds", "traceback",
    ]  # fmt: skip


# ---------------------------------------------------------------------- what-if is decide, asked again

SPANS = st.floats(0, 1_000)
POLICIES = st.one_of(
    st.just(RetryPolicy.NEVER),
    st.builds(RetryPolicy.immediate, max_attempts=st.integers(1, 8), total=st.none() | SPANS),
    st.builds(
        RetryPolicy.constant,
        st.floats(0, 600),
        max_attempts=st.integers(1, 8),
        jitter=st.sampled_from(["none", "full", "equal", "additive(7)"]),
        total=st.none() | SPANS,
    ),
    st.builds(
        RetryPolicy.exponential,
        st.floats(0, 60),
        cap=st.floats(60, 1_000),
        max_attempts=st.integers(1, 8),
        jitter=st.sampled_from(["none", "full", "equal", "additive(7)"]),
        total=st.none() | SPANS,
    ),
)
FAILURES = st.builds(failure, terminal=st.integers(0, 9).map(lambda n: n == 9), retry_after=st.none() | SPANS)
RUNS = st.lists(st.tuples(FAILURES, st.floats(0, 1, exclude_max=True), st.floats(0, 30)), min_size=8, max_size=8)


class Stood(msgspec.Struct, frozen=True):
    attempts: int
    losses: int = 0


def lived(policy: RetryPolicy, runs) -> tuple[Letter, list]:
    """Return a letter whose tries went as *runs* say: what failed, the die, and how long it ran."""
    tries, moves, age = (), [], 0.0
    for attempt, (failed, draw, seconds) in enumerate(runs, 1):
        age += seconds
        move = decide(Stood(attempt), Failed(failed), policy, draw, age=age)
        tries, moves = logged(tries, line_of(move, attempt)), [*moves, move]
        age += move.delay
        if move.to is Status.FAILED:
            break
    return Letter(id="a", queue="q", kind="k", payload=b"", tries=tries, applied_policy=policy.text), moves


def told(steps) -> list[tuple[str, str, float]]:
    return [(step.to, step.why, step.delay) for step in steps]


@given(POLICIES, RUNS)
def test_what_if_with_its_own_policy_is_what_happened(policy, runs):
    letter, moves = lived(policy, runs)
    answer = what_if(letter, RetryPolicy.parse(letter.applied_policy))
    assert told(answer.tries)[: len(moves)] == told(moves)
    assert len(answer.tries) == len(moves) or moves[-1].to is Status.PENDING


@given(POLICIES, POLICIES, RUNS)
def test_what_if_with_another_policy_is_what_decide_would_have_said(policy, other, runs):
    letter, moves = lived(policy, runs)
    ran = runs[: len(moves)]
    _, expected = lived(other, ran)
    answer = what_if(letter, other)
    shared = min(len(expected), len(moves))
    for step, move in zip(told(answer.tries)[:shared], told(expected)[:shared], strict=True):
        assert step[:2] == move[:2]
        assert step[2] == pytest.approx(move[2])


@pytest.mark.parametrize("asked", [0.0, 1.0, 599.0])
def test_what_if_does_not_take_a_wait_of_the_policys_own_for_a_retry_after(asked):
    patient = RetryPolicy.constant(600, max_attempts=3)
    letter, _ = lived(patient, [(failure(retry_after=asked), 0.5, 0.0)])
    assert what_if(letter, RetryPolicy.immediate(max_attempts=3)).tries[0].delay == asked


def test_what_if_of_a_letter_that_killed_its_workers_is_the_same_for_every_policy():
    crashed = decide(Stood(1, losses=2), Lost("gone"), POLICY, 0.5)
    letter = Letter(id="a", queue="q", kind="k", payload=b"", tries=logged((), line_of(crashed, 1)))
    assert told(what_if(letter, RetryPolicy.exponential(max_attempts=9)).tries) == [("failed", "worker_crashed", 0.0)]


def test_what_if_follows_a_policy_that_is_chosen_by_the_failure():
    policies = {
        Category.NETWORK: RetryPolicy.constant(7, max_attempts=9, jitter="none"),
        Category.RESOURCE: RetryPolicy.constant(90, max_attempts=9, jitter="none"),
        Category.PERMANENT: RetryPolicy.NEVER,
    }
    failures = [msgspec.structs.replace(failure(), category=category) for category in policies]
    letter, _ = lived(RetryPolicy.constant(1, max_attempts=9), [(one, 0.5, 0.0) for one in failures])
    answer = what_if(letter, lambda one: policies[one.category])
    assert told(answer.tries) == [
        ("pending", "backing off", 7.0),
        ("pending", "backing off", 90.0),
        ("failed", "exhausted", 0.0),
    ]
    assert answer.policy == " / ".join(policy.text for policy in policies.values())
