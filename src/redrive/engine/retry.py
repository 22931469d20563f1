"""
Retry a function call, with no store.

Owns the decorator only: the policies, the classification and the decision are the same as a letter's. It waits
in the caller's task or thread, and a restart forgets everything: enqueue what must survive. Knows no store.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from redrive.core.classify import HANDLER, Rules, classify
from redrive.core.decide import Counted, Failed, decide
from redrive.core.letter import Status
from redrive.core.policy import DEFAULT_RETRY_POLICY, RetryPolicy
from redrive.engine.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redrive.engine.clock import Clock

P = ParamSpec("P")
T = TypeVar("T")


class Retrying:
    """How one decorated function is retried; tests replace *clock*, so that nothing waits."""

    def __init__(self, policy: RetryPolicy, rules: Rules, clock: Clock) -> None:
        self.policy = policy
        self.rules = rules
        self.clock = clock

    def wait_after(self, error: Exception, attempts: int, began: float) -> float | None:
        """Return the seconds until the next try, or None to give up; *error* then carries a note with the reason."""
        outcome = Failed(classify(error, self.policy, self.rules))
        age = self.clock.monotonic() - began
        move = decide(Counted(attempts), outcome, self.policy, self.clock.draw(), age=age)
        if move.to is Status.PENDING:
            return move.delay
        with contextlib.suppress(TypeError):  # an exception class may have broken notes
            BaseException.add_note(
                error, f"redrive gave up after {attempts} of {self.policy.max_attempts} attempts: {move.why}"
            )
        return None


@overload
def retry(policy: Callable[P, T], /) -> Callable[P, T]: ...
@overload
def retry(
    policy: RetryPolicy = ..., /, *, rules: Rules = ..., clock: Clock | None = ...
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...
def retry(
    policy: RetryPolicy | Callable[P, T] = DEFAULT_RETRY_POLICY,
    /,
    *,
    rules: Rules = HANDLER,
    clock: Clock | None = None,
) -> Any:
    """
    Call the function again after a failure, by *policy*; `@retry`, `@retry()` or `@retry(policy)`.

    Works for sync and async functions. The caller gets the exception of the last try, with a note: how many
    tries there were and why they ended. `Reject` ends the tries at once, `RetryAfter` sets the least wait, and
    cancellation passes through. Tests can replace the decorated function's `retry.clock`.
    """
    retrying = Retrying(
        policy if isinstance(policy, RetryPolicy) else DEFAULT_RETRY_POLICY, rules, clock or SystemClock()
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        wrapper = _wrap(function, retrying)
        wrapper.retry = retrying  # type: ignore[attr-defined]
        return wrapper

    return decorate if isinstance(policy, RetryPolicy) else decorate(policy)


def _wrap(function: Callable[..., Any], retrying: Retrying) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"cannot retry {function.__qualname__!r}: it has a `yield`, and half of it may be consumed by then"
        )
    return _wrap_async(function, retrying) if inspect.iscoroutinefunction(function) else _wrap_sync(function, retrying)


def _wrap_sync(function: Callable[P, T], retrying: Retrying) -> Callable[P, T]:
    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        began, attempts = retrying.clock.monotonic(), 1
        while True:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # user code; the policy decides which of its errors to retry
                wait = retrying.wait_after(error, attempts, began)
                if wait is None:
                    raise
            attempts += 1
            retrying.clock.block(wait)

    return wrapper


def _wrap_async(function: Callable[P, Awaitable[T]], retrying: Retrying) -> Callable[P, Awaitable[T]]:
    @functools.wraps(function)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        began, attempts = retrying.clock.monotonic(), 1
        while True:
            try:
                return await function(*args, **kwargs)
            except Exception as error:  # user code; the policy decides which of its errors to retry
                wait = retrying.wait_after(error, attempts, began)
                if wait is None:
                    raise
            attempts += 1
            await retrying.clock.sleep(wait)

    return wrapper
