"""
Workflow functions and blocks whose failures are enqueued.

Owns the decorator's and the context manager's way of finding the task, and of handing the failure on. Which failures
are enqueued is the integration's business.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

from redrive.engine.clock import new_id
from redrive.errors import SourceError
from redrive.sources.workflow.retrying.running import succeeded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import TracebackType


class Handles(Protocol):
    """What decides on a failure."""

    async def handle(
        self, task_id: str, task: dict[str, Any], repos: Iterable[str], error: BaseException | str
    ) -> dict[str, Any] | None:
        """Return the failed result, or None to let the caller have the error."""


def wrapped(integration: Handles, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return *function* as an async one whose failures are enqueued; a sync one runs in a thread."""
    signature = inspect.signature(function)
    if "task" not in signature.parameters:
        raise SourceError(f"cannot wrap {function.__name__!r}: it has no parameter `task`; name its first argument so")

    @functools.wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        task, repos = given["task"], given.get("repos") or ()
        try:
            if inspect.iscoroutinefunction(function):
                result = await function(*args, **kwargs)
            else:
                result = await asyncio.to_thread(function, *args, **kwargs)
        except Exception as error:
            handled = await integration.handle(task_id_of(task), task, repos, error)
            if handled is None:
                raise
            return handled
        return await judged(integration, result, task, repos)

    return run


async def judged(integration: Handles, result: Any, task: dict[str, Any], repos: Iterable[str]) -> Any:
    """Return *result*; if that says that the workflow failed, the failure is enqueued and the result tells it."""
    if succeeded(result):
        return result
    told = str(result.get("error") or "the workflow returned a failed result")
    handled = await integration.handle(task_id_of(task), task, repos, told)
    return result if handled is None else {**result, **handled}


def task_id_of(task: Any) -> str:
    """Return the id that *task* names, or a new one."""
    named = (task.get("task_id") or task.get("id")) if isinstance(task, Mapping) else None
    return str(named) if isinstance(named, str | int) and named else f"wf_{new_id()}"


class Captured:
    """A block whose failure is enqueued; *result* is the failed result then, and None otherwise."""

    def __init__(self, integration: Handles, task_id: str, task: dict[str, Any], repos: list[str]) -> None:
        self._integration, self._task, self._repos = integration, task, repos
        self.task_id = task_id
        self.result: dict[str, Any] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.result = await self._integration.handle(self.task_id, self._task, self._repos, error)
        return self.result is not None
