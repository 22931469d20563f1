"""
Failed workflows into the queue by themselves.

Owns the strategies: which failures are enqueued, with which policy, and what the caller gets instead of an exception.
The workflow's own error always reaches the caller, also when the queue is full or its store is away. Knows no letter.
"""

from __future__ import annotations

import inspect
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

from redrive.errors import RedriveError, SourceError
from redrive.signals.log import write
from redrive.sources.workflow import policies
from redrive.sources.workflow.policies import RetryPolicy
from redrive.sources.workflow.retrying.running import failure_of, is_retrying
from redrive.sources.workflow.types import DLQIntegrationStrategy, FailedTask
from redrive.sources.workflow.wrapping import Captured, judged, task_id_of, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from redrive.core.letter import Category
    from redrive.sources.workflow.policies import AnyPolicy
    from redrive.sources.workflow.queue import DeadLetterQueue

_ADAPTER = "llamaindex"  # of tasks that name none


class DLQIntegration:
    """Puts failed workflows of *app* into *dlq*. `await integration` gives it too."""

    def __init__(
        self,
        app: Any,
        dlq: DeadLetterQueue,
        strategy: DLQIntegrationStrategy | str = DLQIntegrationStrategy.AUTOMATIC,
        *,
        breaker: str | None = None,
    ) -> None:
        self.app, self.dlq, self._breaker = app, dlq, breaker
        self._strategy = DLQIntegrationStrategy(strategy)
        self._counts: Counter[str] = Counter()

    def __await__(self) -> Generator[Any, None, Self]:
        return self
        yield  # an awaitable is a generator, and this one never waits

    # ------------------------------------------------------------------ strategy

    def set_strategy(self, strategy: DLQIntegrationStrategy | str) -> None:
        """Choose which failures are enqueued from now on."""
        self._strategy = DLQIntegrationStrategy(strategy)

    def get_strategy(self) -> DLQIntegrationStrategy:
        """Return the strategy."""
        return self._strategy

    async def classify_error(self, error: BaseException | str) -> Category:
        """Return the category of *error*: by its type first, then by its text."""
        return failure_of(error).category

    def should_enqueue(self, error: BaseException | str, error_category: Category | str | None = None) -> bool:
        """Say whether the strategy enqueues this failure; within a retry, or if it is disabled, nothing is."""
        if is_retrying() or self._is_disabled or self._strategy is DLQIntegrationStrategy.MANUAL:
            return False
        if self._strategy is DLQIntegrationStrategy.AUTOMATIC:
            return True
        return self.determine_retry_policy(error, error_category) is not RetryPolicy.NEVER

    def determine_retry_policy(
        self, error: BaseException | str, error_category: Category | str | None = None
    ) -> RetryPolicy:
        """Return the policy of the failure's category."""
        return policies.for_category(failure_of(error, error_category).category)

    # ------------------------------------------------------------------ enqueueing

    async def enqueue_failed_workflow(
        self,
        task_id: str,
        task: dict[str, Any],
        repos: Iterable[str],
        error: BaseException | str,
        *,
        retry_policy: AnyPolicy | None = None,
        max_retries: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> FailedTask | None:
        """Enqueue the failure if the strategy wants it; None if it leaves it out. Raise as `enqueue` does."""
        if not self.should_enqueue(error):
            self._counts["left_out"] += not is_retrying()  # within a retry the failure is that of the task
            return None
        kept = await self.dlq.enqueue(
            task_id,
            task,
            repos,
            error,
            retry_policy,
            max_retries,
            metadata,
            breaker=self._breaker,
            by_category=True,
        )
        self._counts["enqueued"] += 1
        return kept

    async def handle(
        self, task_id: str, task: dict[str, Any], repos: Iterable[str], error: BaseException | str
    ) -> dict[str, Any] | None:
        """Return the failed result of a workflow; None if the strategy leaves the failure to the caller."""
        failed = {"status": "failed", "error": str(error), "error_type": _type(error), "task_id": task_id}
        try:
            kept = await self.enqueue_failed_workflow(task_id, task, repos, error)
        except Exception as trouble:  # noqa: BLE001 - the workflow's own error goes first, before any of ours
            self._counts["not_kept"] += 1
            write("error", "redrive.workflow.not_kept", {"task_id": task_id, "why": type(trouble).__name__})
            nothing = {"dlq_task_id": None, "retry_policy": None, "max_retries": None}
            return {**failed, "dlq_enqueued": False, **nothing, "dlq_error": _told(trouble)}
        if kept is None:
            return None
        told = {"dlq_task_id": kept.task_id, "retry_policy": str(kept.retry_policy), "max_retries": kept.max_retries}
        return {**failed, "dlq_enqueued": True, **told}

    async def execute_with_dlq(
        self, task: dict[str, Any], adapter_name: str, repos: Iterable[str] | None = None, user_id: str | None = None
    ) -> Any:
        """Run `app.execute_workflow_parallel`; a failure that is enqueued becomes a failed result."""
        given = {"task": task, "adapter_name": adapter_name, "repos": list(repos or ())}
        if user_id is not None:
            given["user_id"] = user_id
        kept = {**task, "adapter": adapter_name}  # a retry uses the adapter that ran
        try:
            result = await _awaited(self.app.execute_workflow_parallel(**given))
        except Exception as error:
            handled = await self.handle(task_id_of(task), kept, given["repos"], error)
            if handled is None:
                raise
            return handled
        return await judged(self, result, kept, given["repos"])

    # ------------------------------------------------------------------ wrapping

    def workflow(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """
        Decorate a workflow function, sync or async, that takes `task` and perhaps `repos`.

        The decorated function is awaited. It returns what the function returns, or a failed result.
        """
        return wrapped(self, function)

    def capture(self, task: dict[str, Any], repos: Iterable[str] = (), task_id: str | None = None) -> Captured:
        """Return a context manager, `async with integration.capture(task) as run:`; see `run.result`."""
        return Captured(self, task_id or task_id_of(task), task, list(repos))

    # ------------------------------------------------------------------ the processor, numbers

    async def start_dlq_processor(self) -> None:
        """Start the retries unless the configuration disables them; the callback runs the app's own workflow."""
        if self._has_no_processor():
            return
        seconds = getattr(self._config, "dlq_retry_interval_seconds", None)
        await self.dlq.start_retry_processor(callback=self._run_again, check_interval_seconds=seconds)

    async def stop_dlq_processor(self) -> None:
        """Stop the retries of this process, also those that began before the configuration disabled them."""
        self._has_no_processor()
        await self.dlq.stop_retry_processor()

    @property
    def _config(self) -> Any:
        return getattr(self.app, "config", None) or self.dlq.settings

    @property
    def _is_disabled(self) -> bool:
        return self._strategy is DLQIntegrationStrategy.DISABLED or not getattr(self._config, "dlq_enabled", True)

    def _has_no_processor(self) -> bool:
        """Say whether the configuration disables the processor, and log it."""
        told = "the dead-letter queue is disabled; it has no retry processor" if self._is_disabled else None
        if not getattr(self._config, "dlq_retry_processor_enabled", True):
            told = told or "the retry processor is disabled in the configuration"
        if told is not None:
            write("info", "redrive.workflow.disabled", {"told": told})
        return told is not None

    async def _run_again(self, task: dict[str, Any], repos: list[str]) -> Any:
        adapter = task.get("adapter", _ADAPTER)
        return await _awaited(self.app.execute_workflow_parallel(task=task, adapter_name=adapter, repos=repos))

    async def get_statistics(self) -> dict[str, Any]:
        """Return the queue's numbers and, under `integration`, those of this object."""
        mine = {name: self._counts[name] for name in ("enqueued", "left_out", "not_kept")}
        return {**await self.dlq.get_statistics(), "strategy": str(self._strategy), "integration": mine}

    def reset_statistics(self) -> None:
        """Begin this object's own numbers again; the queue's are shared and stay."""
        self._counts.clear()


def create_dlq_integration(app: Any, **options: Any) -> DLQIntegration:
    """Return the integration of *app*, which has its queue as `app.dlq`; call it plainly or await it."""
    dlq = getattr(app, "dlq", None)
    if dlq is None:
        raise SourceError("cannot integrate an app without a queue: set app.dlq = DeadLetterQueue(…) first")
    return DLQIntegration(app, dlq, **options)


def _told(trouble: Exception) -> str:
    """Return why a failure was not kept; only texts of our own are sure to show nothing of the task."""
    return str(trouble) if isinstance(trouble, RedriveError) else f"cannot keep the task: {type(trouble).__name__}"


def _type(error: BaseException | str) -> str:
    return "WorkflowError" if isinstance(error, str) else type(error).__name__


async def _awaited(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result
