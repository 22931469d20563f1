"""
One retry of one task.

Owns the call of the user's callback and what its result means: everything that it raises, and a result that says so
itself, is a failure of the task. While it runs, `is_retrying` is true for all that it calls, also in tasks and
threads that it starts. Knows no store and no decision.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from redrive.core.classify import WORKFLOW, classify, classify_text
from redrive.core.decide import SUCCEEDED, Failed
from redrive.core.letter import Category
from redrive.core.policy import RetryPolicy as Policy
from redrive.sources.workflow.mapping import call_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.decide import Outcome
    from redrive.core.letter import Failure, Letter

    Callback = Callable[[dict[str, Any], list[str]], Any]
    Judge = Callable[[Any], bool]

# The category chooses the policy, and a caller may choose another one: no category is terminal by itself.
RULES = msgspec.structs.replace(WORKFLOW, terminal_categories=frozenset())
TEXT_ERROR = "WorkflowError"  # the type of an error that arrives as text
_retrying: ContextVar[bool] = ContextVar("redrive_workflow_retrying", default=False)


def is_retrying() -> bool:
    """Whether the caller runs within a retry: its failure belongs to the task that is being retried."""
    return _retrying.get()


def succeeded(result: Any) -> bool:
    """Whether *result* is a success: anything but a mapping with status "failed", or with success False."""
    if not isinstance(result, Mapping):
        return True
    return result.get("status") != "failed" and result.get("success") is not False


def failure_of(error: BaseException | str, category: Category | str | None = None) -> Failure:
    """Return *error* as data; *category* is the caller's own judgement and wins."""
    failure = (
        classify_text(TEXT_ERROR, error, Policy.NEVER, RULES)
        if isinstance(error, str)
        else classify(error, Policy.NEVER, RULES)
    )
    if category is None:
        return failure
    return msgspec.structs.replace(failure, category=Category(category), rule="the caller named the category")


async def attempt(callback: Callback, letter: Letter, judge: Judge) -> tuple[Outcome, Any]:
    """Run *callback* on the task; return the outcome and what it returned. A cancellation passes through."""
    token = _retrying.set(True)
    try:
        call = call_of(letter)
        result = await _called(callback, call.task, call.repos)
        return (SUCCEEDED if judge(result) else Failed(failure_of(_told(result)))), result
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Failed(failure_of("the callback was cancelled", Category.TRANSIENT)), None
    except BaseException as error:  # noqa: BLE001 - the callback may raise anything
        return Failed(failure_of(error)), None
    finally:
        _retrying.reset(token)


async def _called(callback: Callback, task: dict[str, Any], repos: list[str]) -> Any:
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(type(callback).__call__):
        return await callback(task, repos)
    result = await asyncio.to_thread(callback, task, repos)
    return await result if inspect.isawaitable(result) else result


def _told(result: Any) -> str:
    """Return the error that a failed result names."""
    error = result.get("error") if isinstance(result, Mapping) else None
    return str(error) if error else "the callback returned a failed result"
