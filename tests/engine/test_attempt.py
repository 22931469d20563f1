from __future__ import annotations

import asyncio

import pytest
from tests.engine.starting import attempt, letter

from redrive.core.classify import HANDLER, WORKFLOW
from redrive.core.decide import SUCCEEDED, Failed
from redrive.core.letter import Category
from redrive.engine.attempt import attempt_now, failure_of
from redrive.engine.handler import build_handler
from redrive.errors import Reject, RetryAfter


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Chatty(Exception):
    def __str__(self):
        return "x" * 100_000_000


class Whim(BaseException):
    pass


def looped() -> Exception:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


async def both_ways(error: BaseException, **options):
    """Run a handler that raises *error*, async and sync; return the two failures."""

    async def raises(payload):
        raise error

    def raises_now(payload):
        raise error

    outcomes = (
        await attempt(build_handler("order", raises, **options), letter()),
        attempt_now(build_handler("order", raises_now, **options), letter()),
    )
    assert all(isinstance(outcome, Failed) for outcome in outcomes)
    return [outcome.failure for outcome in outcomes]


@pytest.mark.parametrize(
    ("error", "category", "terminal"),
    [
        (ValueError("bad"), Category.TRANSIENT, False),
        (ConnectionResetError("gone"), Category.NETWORK, False),
        (MemoryError(), Category.RESOURCE, False),
        (Reject("never"), Category.PERMANENT, True),
        (RetryAfter(30), Category.TRANSIENT, False),
        (SystemExit(3), Category.TRANSIENT, False),
        (KeyboardInterrupt(), Category.TRANSIENT, False),
        (Whim("of mine"), Category.TRANSIENT, False),
        (Speechless(), Category.TRANSIENT, False),
        (Chatty(), Category.TRANSIENT, False),
        (looped(), Category.TRANSIENT, False),
        (ExceptionGroup("many", [ValueError("a"), ValueError("b")]), Category.TRANSIENT, False),
        (BaseExceptionGroup("many", [KeyboardInterrupt(), Whim()]), Category.TRANSIENT, False),
        (asyncio.CancelledError("by itself"), Category.TRANSIENT, False),
        (StopIteration(1), Category.TRANSIENT, False),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_whatever_a_handler_raises_is_its_outcome(error, category, terminal):
    for failure in await both_ways(error):
        assert (failure.category, failure.terminal) == (category, terminal)
        assert len(failure.message) < 10_000
        assert failure.fingerprint


async def test_a_handler_can_ask_for_time():
    assert [failure.retry_after for failure in await both_ways(RetryAfter(30))] == [30, 30]


async def test_a_handlers_own_lists_decide():
    failures = await both_ways(KeyError("x"), terminal_errors=(LookupError,))
    assert [failure.terminal for failure in failures] == [True, True]


@pytest.mark.parametrize("payload", [b"{", b"[" * 100_000, b"\xff", b'{"order": 1}'])
async def test_a_payload_that_does_not_decode_is_a_validation_failure_and_terminal(payload):
    async def takes_list(payload: list):
        raise AssertionError

    def takes_list_now(payload: list):
        raise AssertionError

    for outcome in (
        await attempt(build_handler("order", takes_list), letter(payload)),
        attempt_now(build_handler("order", takes_list_now), letter(payload)),
    ):
        assert (outcome.failure.category, outcome.failure.terminal) == (Category.VALIDATION, True)


async def test_a_handler_that_returns_has_succeeded():
    async def returns(payload):
        return payload

    assert await attempt(build_handler("order", returns), letter()) is SUCCEEDED
    assert attempt_now(build_handler("order", lambda payload: None), letter()) is SUCCEEDED


async def test_what_succeeded_refuses_is_a_failure():
    async def returns(payload):
        return payload["order"]

    accepts = build_handler("order", returns, succeeded=lambda result: result == 17)
    refuses = build_handler("order", returns, succeeded=lambda result: result == 18)
    breaks = build_handler("order", returns, succeeded=lambda result: result["x"])

    assert await attempt(accepts, letter()) is SUCCEEDED
    assert (await attempt(refuses, letter())).failure.error_type == "ResultRefused"
    assert (await attempt(breaks, letter())).failure.error_type == "TypeError"


def test_an_async_handler_in_a_thread_gets_a_loop_of_its_own():
    async def suspends(payload):
        await asyncio.sleep(0)
        return asyncio.get_running_loop().is_running()

    handler = build_handler("order", suspends, engine="thread", succeeded=lambda result: result is True)

    assert attempt_now(handler, letter()) is SUCCEEDED


def test_a_coroutine_that_a_plain_function_returns_is_run_and_not_forgotten():
    ran = []

    async def work():
        ran.append(True)

    assert attempt_now(build_handler("order", lambda payload: work()), letter()) is SUCCEEDED
    assert ran


async def test_cancelling_the_attempt_passes_through():
    async def waits(payload):
        await asyncio.Event().wait()

    task = asyncio.ensure_future(attempt(build_handler("order", waits), letter()))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_that_cannot_be_described_is_an_outcome_all_the_same(monkeypatch):
    def broken(*_):
        raise KeyError("a fault of our own")

    monkeypatch.setattr("redrive.engine.attempt.classify", broken)
    for failure in await both_ways(ValueError("theirs")):
        assert (failure.error_type, failure.terminal) == ("ValueError", False)
        assert "KeyError" in failure.message


class Down(Exception):
    pass


def _go_down(text):
    raise Down(text)


def _raised(text, *, seconds=None, **about):
    try:
        _go_down(text)
    except Down as error:
        if seconds is not None:
            error.retry_after = seconds
        for name, value in about.items():
            setattr(error, name, value)
        return error


def test_equal_failures_are_described_once_and_what_differs_is_told_apart():
    handler = build_handler("order", lambda payload: None)
    first, again, other = (failure_of(_raised(text), handler) for text in ("a", "a", "b"))
    assert first is again
    assert (first.message, other.message) == ("a", "b")
    assert "Down: b" in other.traceback


def test_an_error_that_carries_more_than_its_text_is_always_looked_at():
    handler = build_handler("order", lambda payload: None)
    assert failure_of(_raised("a"), handler).retry_after is None
    assert failure_of(_raised("a", seconds=7), handler).retry_after == 7
    caused = failure_of(_raised("a", __cause__=OSError("the disk")), handler)
    assert "the disk" in caused.message
    assert "the disk" in failure_of(_raised("a", __context__=OSError("the disk")), handler).traceback


def test_an_equal_error_of_another_handler_or_place_is_another_failure():
    def elsewhere():
        try:
            _go_down("a")
        except Down as error:
            return error

    handler, second = (build_handler("order", lambda payload: None, rules=rules) for rules in (HANDLER, WORKFLOW))
    assert failure_of(_raised("a"), handler).fingerprint != failure_of(elsewhere(), handler).fingerprint
    assert failure_of(_raised("a"), second).category is Category.PERMANENT
