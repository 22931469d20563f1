"""
Run a handler on a letter, once.

Owns the line between the handler's failure and our own: everything that a handler raises is an outcome. The
`try` holds only the decoding of the payload and the call itself. Knows no store and no decision.

SystemExit and KeyboardInterrupt raised by a handler are its failure too, and are retried: a handler does not
decide whether the worker stops. (Signals reach the worker through the event loop, never through a handler.)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from redrive.core.classify import classify
from redrive.core.decide import SUCCEEDED, Failed
from redrive.core.failures.describe import type_name
from redrive.core.letter import Category, Failure
from redrive.engine.traces import trace_of

if TYPE_CHECKING:
    from redrive.core.decide import Outcome
    from redrive.engine.handler import Handler

T = TypeVar("T")


class ResultRefused(Exception):
    """The handler returned what its `succeeded=` refuses."""


async def attempt(handler: Handler[T], item: T) -> Outcome:
    """Run an async handler; only a cancellation from outside passes through."""
    try:
        result = await handler.call(item)
        return SUCCEEDED if handler.succeeded is None else _judged(result, handler)
    except (GeneratorExit, asyncio.CancelledError) as error:
        if isinstance(error, GeneratorExit) or _is_cancelled():
            raise
        return Failed(failure_of(error, handler))
    except BaseException as error:  # noqa: BLE001 - the broad except: handlers may raise anything
        return Failed(failure_of(error, handler))


def attempt_now(handler: Handler[T], item: T) -> Outcome:
    """Run a handler in this thread; an async one gets an event loop of its own."""
    try:
        result = handler.call(item)
        if asyncio.iscoroutine(result):
            result = asyncio.run(result)
        return SUCCEEDED if handler.succeeded is None else _judged(result, handler)
    except BaseException as error:  # noqa: BLE001 - the broad except: handlers may raise anything
        return Failed(failure_of(error, handler))


def timed_out(handler: Handler[Any]) -> Failed:
    """Return the outcome of a handler that took longer than it may."""
    return Failed(failure_of(TimeoutError(f"timed out after {handler.timeout:g} s"), handler))


def failure_of(error: BaseException, handler: Handler[Any]) -> Failure:
    """Return *error* as data: described, judged by the handler's policy and rules, fingerprinted; never raises."""
    try:
        return _traced(error, classify(error, handler.policy, handler.rules), handler)
    except (MemoryError, RecursionError):  # the letter still needs an outcome
        return _undescribed(error, "there was no memory left to describe it")
    except Exception as trouble:  # noqa: BLE001 - a fault of ours must not leave the letter without an outcome
        return _undescribed(error, f"it could not be described: {type_name(type(trouble))}")


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
