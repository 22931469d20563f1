"""Delays are arithmetic: the formulas exactly, and the bounds for every policy there is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.policy import DEFAULT_RETRY_POLICY, LONGEST, RetryPolicy
from redrive.core.policy.backoffs import Backoffs
from redrive.errors import PolicyError

MINUTE = 60
SPANS = st.floats(0, 86_400)
JITTERS = st.sampled_from(["none", "full", "equal", "additive(0.25)", "additive(7)"])
LIMITS = {"max_attempts": st.integers(1, 10**6), "total": st.none() | st.floats(0, LONGEST)}
DRAWS = st.floats(0, 1, exclude_max=True)
TRIES = st.integers(1, 10**9) | st.integers(1, 10)
POLICIES = st.one_of(
    st.just(RetryPolicy.NEVER),
    st.builds(RetryPolicy.immediate, **LIMITS),
    st.builds(RetryPolicy.constant, SPANS, jitter=JITTERS, **LIMITS),
    st.builds(RetryPolicy.linear, SPANS, cap=st.just(LONGEST) | st.floats(86_400, LONGEST), jitter=JITTERS, **LIMITS),
    st.builds(
        RetryPolicy.exponential,
        SPANS,
        cap=st.floats(86_400, LONGEST),
        multiplier=st.floats(1, 1e308),
        jitter=JITTERS,
        **LIMITS,
    ),
)
FUNCTIONS = st.sampled_from(
    [
        lambda n: n,
        lambda n: -n,
        lambda n: 1 / 0,
        lambda n: None,
        lambda n: float("nan"),
        lambda n: 10**400,
        lambda n: "x",
    ]
)


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        (RetryPolicy.NEVER, [0, 0]),
        (RetryPolicy.IMMEDIATE, [0, 0, 0]),
        (RetryPolicy.LINEAR, [5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 20 * MINUTE]),
        (RetryPolicy.EXPONENTIAL, [n * MINUTE for n in (1, 2, 4, 8, 16, 32, 60, 60)]),
        (RetryPolicy.inbox(), [10, 20, 40, 80, 160, 300, 300]),
        (RetryPolicy.inbox(base=200, cap=300), [300, 300]),
        (RetryPolicy.kafka(retry_jitter_ms=0), [1, 2, 4, 8, 16, 30, 30]),
        (RetryPolicy.kafka(retry_jitter_ms=0, exponential_backoff=False), [1, 1, 1]),
        (RetryPolicy.kafka(retry_backoff_ms=0, retry_jitter_ms=0), [0, 0]),
        (RetryPolicy.kafka(retry_jitter_ms=0, exponential_backoff=False, max_retry_backoff_ms=300), [0.3, 0.3]),
        (RetryPolicy.constant(7), [7, 7]),
        (RetryPolicy.linear(5, cap=12), [5, 10, 12]),
        (RetryPolicy.exponential(2, cap=100, multiplier=3, jitter="none"), [2, 6, 18, 54, 100]),
        (RetryPolicy.custom(lambda n: n * n), [1, 4, 9]),
    ],
)
def test_every_formula_is_the_documented_one(policy, waits):
    assert [policy.delay(attempt, 0.75) for attempt in range(1, len(waits) + 1)] == waits


@pytest.mark.parametrize(
    ("jitter", "draw", "wait"),
    [
        ("none", 0.5, 8),
        ("full", 0.0, 0),
        ("full", 0.5, 4),
        ("equal", 0.0, 4),
        ("equal", 0.5, 6),
        ("additive(2)", 0.0, 8),
        ("additive(2)", 0.5, 9),
    ],
)
def test_jitter_spreads_the_wait(jitter, draw, wait):
    assert RetryPolicy.exponential(1, jitter=jitter).delay(4, draw) == wait


@pytest.mark.parametrize(
    ("jitter", "added"), [("none", 0), ("full", 5), ("equal", 5), ("additive(2)", 1), ("additive(0)", 0)]
)
def test_a_retry_after_is_spread_by_the_first_wait(jitter, added):
    assert RetryPolicy.exponential(10, jitter=jitter).spread(0.5) == added


def test_the_default_is_five_tries_from_one_second_with_full_jitter():
    assert DEFAULT_RETRY_POLICY.text == "exponential:first=1,cap=300,max_attempts=5,jitter=full"
    assert DEFAULT_RETRY_POLICY.total is None


def test_the_named_policies_allow_three_retries():
    assert RetryPolicy.NEVER.max_attempts == 1
    named = (RetryPolicy.LINEAR, RetryPolicy.EXPONENTIAL, RetryPolicy.IMMEDIATE)
    assert {policy.max_attempts for policy in named} == {4}


def test_the_kafka_consumers_jitter_is_added_beyond_the_cap():
    assert RetryPolicy.kafka().delay(50, 0.5) == pytest.approx(30.1)
    assert RetryPolicy.kafka().max_attempts == 3


@given(POLICIES, TRIES, DRAWS)
def test_no_wait_is_negative_or_above_the_cap_and_its_span(policy, attempt, draw):
    assert 0 <= policy.delay(attempt, draw) <= policy.cap + policy.span
    assert 0 <= policy.spread(draw) <= policy.cap + policy.span


@given(FUNCTIONS, JITTERS, TRIES, DRAWS)
def test_a_broken_formula_of_the_users_still_gives_a_wait(function, jitter, attempt, draw):
    policy = RetryPolicy.custom(function, cap=60, jitter=jitter)
    assert 0 <= policy.delay(attempt, draw) <= 60 + policy.span


@pytest.mark.parametrize("attempt", [1_024, 10**6, 10**9, 10**400])
@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy.exponential(jitter="none"),
        RetryPolicy.exponential(multiplier=1e300, jitter="none"),
        RetryPolicy.linear(300, cap=3_600),
        RetryPolicy.custom(lambda n: 2.0**n),
    ],
)
def test_no_number_of_tries_overflows(policy, attempt):
    assert policy.delay(attempt, 0.5) == policy.cap


@given(POLICIES)
def test_a_policy_reads_back_from_its_text(policy):
    assert RetryPolicy.parse(policy.text) == policy


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("exponential", DEFAULT_RETRY_POLICY),
        ("never", RetryPolicy.NEVER),
        (" exponential : max_attempts = 8 ", RetryPolicy.exponential(max_attempts=8)),
        ("linear:step=300,max_attempts=4", RetryPolicy.LINEAR),
        ("constant:delay=0.5,jitter=additive(.20)", RetryPolicy.constant(0.5, jitter="additive(0.2)")),
        ("immediate:total=60", RetryPolicy.immediate(total=60)),
    ],
)
def test_a_text_may_leave_out_what_is_usual(text, policy):
    assert RetryPolicy.parse(text) == policy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sometimes", ["'sometimes'", "never, immediate, constant, linear, exponential"]),
        ("", ["''"]),
        ("custom:function=f", ["'function'", "the name of a registered function", "takes name, cap"]),
        ("never:cap=3", ["'cap'", "takes nothing"]),
        (
            "exponential:first=soon,colour=red,cap=5,cap=6,max_attempts=2.5",
            ["first is 'soon'", "'colour'", "'cap' is given twice", "whole number", "first, cap, multiplier"],
        ),
    ],
)
def test_a_text_that_cannot_be_read_is_refused_with_every_problem(text, words):
    with pytest.raises(PolicyError) as refused:
        RetryPolicy.parse(text)
    assert [word for word in words if word not in str(refused.value)] == []


def test_a_policy_that_makes_no_sense_is_refused_with_every_problem():
    with pytest.raises(PolicyError) as refused:
        RetryPolicy.exponential(
            -1, float("inf"), 0.5, 0, jitter="some", total=-1, terminal_errors=(ValueError, int), retryable_errors=(3,)
        )
    words = ["first", "cap", "multiplier", "max_attempts", "jitter", "total", "terminal_errors", "retryable_errors"]
    assert [word for word in words if word not in str(refused.value)] == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: RetryPolicy.exponential(first=600),  # above the cap
        lambda: RetryPolicy.exponential(max_attempts=True),
        lambda: RetryPolicy.exponential(max_attempts="5"),
        lambda: RetryPolicy.exponential(multiplier=float("nan")),
        lambda: RetryPolicy.exponential(jitter="additive(-1)"),
        lambda: RetryPolicy.exponential(jitter="additive(nan)"),
        lambda: RetryPolicy.constant(10 * LONGEST),
        lambda: RetryPolicy.constant(10**400),
        lambda: RetryPolicy.exponential(terminal_errors="ValueError"),
        lambda: RetryPolicy.exponential(retryable_errors=ValueError),
        lambda: RetryPolicy.custom(None),
    ],
)
def test_a_slip_is_refused(make):
    with pytest.raises(PolicyError):
        make()


def test_policies_are_values():
    assert RetryPolicy.exponential(2) == RetryPolicy.exponential(2.0)
    assert hash(RetryPolicy.exponential(2)) == hash(RetryPolicy.exponential(2))
    assert replace(RetryPolicy.EXPONENTIAL, max_attempts=9).text.count("max_attempts=9") == 1
    assert repr(RetryPolicy.NEVER) == "RetryPolicy('never')"


def test_a_policy_that_says_nothing_is_the_default_one():
    assert RetryPolicy() == DEFAULT_RETRY_POLICY == RetryPolicy.exponential()
    short = RetryPolicy(max_attempts=3, terminal_errors=(KeyError,))
    assert short == RetryPolicy.exponential(max_attempts=3, terminal_errors=(KeyError,))
    assert RetryPolicy.parse(RetryPolicy(max_attempts=3).text) == RetryPolicy(max_attempts=3)


def test_never_is_one_try():
    with pytest.raises(PolicyError, match=r"RetryPolicy\.never\(\)"):
        RetryPolicy(backoff=RetryPolicy.NEVER.backoff)


# ---------------------------------------------------------------------- functions by name


def test_a_policy_names_a_registered_function_and_reads_back_from_its_text():
    policy = RetryPolicy.named("payments", cap=60, max_attempts=3, total=600)
    assert policy.text == "custom:name=payments,cap=60,max_attempts=3,jitter=none,total=600"
    assert RetryPolicy.parse(policy.text) == policy


def test_a_named_policy_waits_what_its_function_says_and_never_longer_than_its_cap():
    backoffs = Backoffs()
    backoffs.add("payments", lambda attempt: 10.0 * attempt)
    policy = backoffs.bound(RetryPolicy.named("payments", cap=25))
    assert [policy.delay(attempt, 0.5) for attempt in (1, 2, 3)] == [10, 20, 25]
    assert policy.text == RetryPolicy.named("payments", cap=25).text


def test_a_named_policy_without_its_function_waits_for_the_cap():
    assert Backoffs().bound(RetryPolicy.named("payments", cap=25)).delay(1, 0.5) == 25


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (lambda _: float("nan"), "returned nan"),
        (lambda attempt: float("inf") if attempt > 9 else 1, "returned inf for try 10"),
        (lambda attempt: 5 - attempt, "returned -1 for try 6"),
        (lambda _: 10 * LONGEST, "seconds from 0 to"),
        (lambda _: "5", "returned str"),
        (lambda _: True, "returned bool"),
        (lambda attempt: 1 / (3 - attempt), "raised ZeroDivisionError"),
        ("no function", "it is str"),
    ],
)
def test_a_function_whose_waits_are_not_finite_positive_and_bounded_is_not_registered(function, word):
    backoffs = Backoffs()
    with pytest.raises(PolicyError, match=word):
        backoffs.add("payments", function)
    assert list(backoffs) == []


@pytest.mark.parametrize("name", ["", "a,b", "a=b", "x" * 81, 3, "na me"])
def test_a_name_that_a_policys_text_cannot_hold_is_refused(name):
    with pytest.raises(PolicyError):
        Backoffs().add(name, lambda _: 1)
    with pytest.raises(PolicyError):
        RetryPolicy.named(name)


def test_a_name_stands_for_one_function():
    backoffs, function = Backoffs(), lambda _: 1.0
    backoffs.add("payments", function)
    backoffs.add("payments", function)
    with pytest.raises(PolicyError, match="second"):
        backoffs.add("payments", lambda _: 2.0)


def test_a_process_says_which_name_it_lacks():
    backoffs = Backoffs()
    backoffs.add("payments", lambda _: 1.0)
    texts = (None, "never", "custom:name=payments", "custom:name=other", "custom:function=f", "custom:colour=red")
    assert [backoffs.lacking(text) for text in texts] == ["", "", "", "other", "", ""]
