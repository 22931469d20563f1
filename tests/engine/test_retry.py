from __future__ import annotations

import asyncio

import pytest

from redrive.core.policy import RetryPolicy
from redrive.engine.retry import retry
from redrive.errors import Reject, RetryAfter

POLICY = RetryPolicy.exponential(first=1, cap=8, max_attempts=4, jitter="none")


class LoadedClock:
    """A clock that jumps instead of waiting, and a die that always shows the same."""

    def __init__(self):
        self.now = 0.0
        self.waits = []

    def monotonic(self):
        return self.now

    def draw(self):
        return 0.5

    def block(self, seconds):
        self.waits.append(seconds)
        self.now += seconds

    async def sleep(self, seconds):
        self.block(seconds)


class Flaky:
    """A function that raises what it is told, call by call, then returns."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = 0

    def now(self, value):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return value

    async def later(self, value):
        await asyncio.sleep(0)
        return self.now(value)


@pytest.fixture(params=["sync", "async"])
def call(request):
    """Call a flaky function under `retry`, sync and async alike; return its value and the waits."""

    async def call(flaky, policy=POLICY, clock=None):
        clock = clock or LoadedClock()
        if request.param == "sync":
            return retry(policy, clock=clock)(flaky.now)("value"), clock.waits
        return await retry(policy, clock=clock)(flaky.later)("value"), clock.waits

    return call


async def test_a_call_that_succeeds_is_made_once_and_never_waits(call):
    flaky = Flaky()
    assert await call(flaky) == ("value", [])
    assert flaky.calls == 1


async def test_failures_are_retried_with_the_policys_waits(call):
    flaky = Flaky(ValueError(), OSError(), ValueError())
    assert await call(flaky) == ("value", [1, 2, 4])


async def test_the_last_error_is_raised_as_it_is_with_a_note(call):
    last = ValueError("last")
    flaky = Flaky(ValueError(), ValueError(), ValueError(), last)
    with pytest.raises(ValueError, match="last") as caught:
        await call(flaky)

    assert caught.value is last
    assert last.__notes__ == ["redrive gave up after 4 of 4 attempts: exhausted"]
    assert last.__context__ is None
    assert flaky.calls == 4


async def test_reject_ends_it_at_once(call):
    flaky = Flaky(Reject("never"))
    with pytest.raises(Reject) as caught:
        await call(flaky)

    assert caught.value.__notes__ == ["redrive gave up after 1 of 4 attempts: terminal"]


async def test_the_policys_terminal_errors_end_it_at_once(call):
    flaky = Flaky(KeyError("x"))
    with pytest.raises(KeyError):
        await call(flaky, RetryPolicy.immediate(terminal_errors=(LookupError,)))

    assert flaky.calls == 1


async def test_retry_after_sets_the_wait(call):
    assert await call(Flaky(RetryAfter(30))) == ("value", [30])


async def test_the_total_time_is_kept(call):
    policy = RetryPolicy.constant(delay=10, max_attempts=100, total=25)
    flaky = Flaky(*[OSError() for _ in range(9)])
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the note is what is looked at
        await call(flaky, policy)

    assert flaky.calls == 3
    assert caught.value.__notes__ == ["redrive gave up after 3 of 100 attempts: out of time"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
async def test_what_is_no_failure_passes_through(call, error):
    flaky = Flaky(error())
    with pytest.raises(error):
        await call(flaky)

    assert flaky.calls == 1


def test_it_can_be_used_bare_and_with_empty_brackets():
    @retry
    def bare(value: int, *, factor: int = 2) -> int:
        """Multiply."""
        return value * factor

    @retry()
    def brackets() -> str:
        return "yes"

    assert (bare(3, factor=4), brackets()) == (12, "yes")
    assert (bare.__name__, bare.__doc__) == ("bare", "Multiply.")


def test_the_clock_of_a_decorated_function_can_be_replaced():
    flaky, clock = Flaky(OSError(), OSError()), LoadedClock()
    decorated = retry(flaky.now)
    decorated.retry.clock = clock

    assert decorated(1) == 1
    assert len(clock.waits) == 2


def test_generators_are_refused():
    with pytest.raises(TypeError, match="yield"):

        @retry
        def generates():
            yield 1


def test_strange_notes_do_not_hide_the_error():
    error = ValueError("strange")
    error.__notes__ = "not a list"
    with pytest.raises(ValueError, match="strange"):
        retry(RetryPolicy.never(), clock=LoadedClock())(Flaky(error).now)(1)
