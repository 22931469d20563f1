"""
Run a handler on a letter, once.

Owns the line between the handler's failure and our own: everything that a handler raises is an outcome. The
`try` holds only the decoding of the payload and the call itself. Knows no store and no decision.

SystemExit and KeyboardInterrupt raised by a handler are its failure too, and are retried: a handler does not
decide whether the worker stops. (Signals reach the worker through the event loop, never through a handler.)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from redrive.core.classify import classify, says_all
from redrive.core.decide import SUCCEEDED, Failed
from redrive.core.failures.describe import steps_of, text_of, type_name
from redrive.core.letter import Category, Failure
from redrive.engine.traces import trace_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.decide import Outcome
    from redrive.engine.handler import Handler

T = TypeVar("T")

_SHORT = 1_000  # characters
_REMEMBERED = 256  # a dependency that is down fails a thousand letters in the same words
_SEEN: dict[tuple[Any, ...], Failure] = {}  # by handler, class, text and the way of the error


class ResultRefused(Exception):
    """The handler returned what its `succeeded=` refuses."""


class ItemRun(Protocol[T]):
    """A handler, and the item that it runs next."""

    handler: Handler[T]
    item: T


R = TypeVar("R", bound=ItemRun[Any])


async def attempt_each(running: R, goes_on: Callable[[R, Outcome], bool]) -> None:
    """
    Run an async handler on its item; only a cancellation from outside passes through.

    *goes_on* gets the outcome; as long as it returns True, *running* has another item, which runs next. A coroutine
    for each item would cost more than a handler that does little.
    """
    more = True
    while more:
        handler = running.handler
        try:
            result = await handler.call(running.item)
            outcome = SUCCEEDED if handler.succeeded is None else _judged(result, handler)
        except BaseException as error:  # noqa: BLE001 - the broad except: handlers may raise anything
            outcome = _raised(error, handler)
        more = goes_on(running, outcome)


def attempt_now(handler: Handler[T], item: T) -> Outcome:
    """Run a handler in this thread; an async one gets an event loop of its own."""
    try:
        result = handler.call(item)
        if asyncio.iscoroutine(result):
            result = asyncio.run(result)
        return SUCCEEDED if handler.succeeded is None else _judged(result, handler)
    except BaseException as error:  # noqa: BLE001 - the broad except: handlers may raise anything
        return Failed(failure_of(error, handler))


def _raised(error: BaseException, handler: Handler[Any]) -> Outcome:
    """Return the outcome of an async handler that raised *error*; raise it again if it cancels from outside."""
    if isinstance(error, GeneratorExit) or (isinstance(error, asyncio.CancelledError) and _is_cancelled()):
        raise error
    return Failed(failure_of(error, handler))


def timed_out(handler: Handler[Any]) -> Failed:
    """Return the outcome of a handler that took longer than it may."""
    return Failed(failure_of(TimeoutError(f"timed out after {handler.timeout:g} s"), handler))


def failure_of(error: BaseException, handler: Handler[Any]) -> Failure:
    """Return *error* as data: described, judged by the handler's policy and rules, fingerprinted; never raises."""
    try:
        return _seen_before(error, handler) or _traced(error, classify(error, handler.policy, handler.rules), handler)
    except (MemoryError, RecursionError):  # the letter still needs an outcome
        return _undescribed(error, "there was no memory left to describe it")
    except Exception as trouble:  # noqa: BLE001 - a fault of ours must not leave the letter without an outcome
        return _undescribed(error, f"it could not be described: {type_name(type(trouble))}")


def _seen_before(error: BaseException, handler: Handler[Any]) -> Failure | None:
    """Return the failure that an equal *error* was before; None if it carries more than its text, or a long one."""
    policy = handler.policy
    if policy.terminal_errors or policy.retryable_errors or not says_all(error, handler.rules):
        return None
    if len(text := text_of(error)) > _SHORT:
        return None
    known = (handler, type(error), text, steps_of(error))
    failure = _SEEN.get(known)
    if failure is None:
        while len(_SEEN) >= _REMEMBERED:
            _SEEN.pop(next(iter(_SEEN), known), None)
        failure = _SEEN[known] = _traced(error, classify(error, policy, handler.rules), handler)
    return failure


def _traced(error: BaseException, failure: Failure, handler: Handler[Any]) -> Failure:
    """Add where *error* came from, if the rules ask for it and it can be found out."""
    if not handler.rules.is_traced:
        return failure
    try:
        text, place = trace_of(error)
    except Exception:  # noqa: BLE001 - the judgement stands without it
        return failure
    return msgspec.structs.replace(failure, traceback=text, place=place)


def _undescribed(error: BaseException, why: str) -> Failure:
    return Failure(error_type=type_name(type(error)), message=why, category=Category.RESOURCE, rule="the default")


def _is_cancelled() -> bool:
    """Whether other code cancelled this task; a handler may also raise CancelledError by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _judged(result: object, handler: Handler[Any]) -> Outcome:
    """Return the outcome that the handler's `succeeded=` gives to *result*; it is user code and may raise."""
    if handler.succeeded is None or handler.succeeded(result):
        return SUCCEEDED
    refusal = ResultRefused(f"succeeded= refused the {type(result).__name__} that the handler returned")
    return Failed(failure_of(refusal, handler))
