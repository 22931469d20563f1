"""
The queue of failed workflows, with the names that its users know.

Owns the methods; each is a few steps over the store. Rules are elsewhere: what is agreed about a task (`admission`),
how it is kept (`mapping`) and found (`finding`), when and how retries run (`retrying`), the numbers (`statistics`,
`telling`).
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from redrive.core import changes
from redrive.core.decide import Succeeded
from redrive.core.letter import Status
from redrive.drafts import metadata_of
from redrive.engine.clock import new_id, unix_ms
from redrive.errors import (
    MoveRefused,
    NotSupported,
    QueueFull,
    SettingsError,
    SourceError,
    StoreUnavailable,
    TaskNotFound,
)
from redrive.sources.workflow import mapping, statistics
from redrive.sources.workflow.admission import RetryWishes, agree, named
from redrive.sources.workflow.clearing import VERBS, clear
from redrive.sources.workflow.finding import OVER, Tasks
from redrive.sources.workflow.mapping import KIND, Call, task_of
from redrive.sources.workflow.port import open_home
from redrive.sources.workflow.retrying.processor import RetryProcessor
from redrive.sources.workflow.retrying.running import succeeded
from redrive.sources.workflow.telling import Counting
from redrive.sources.workflow.types import DeadLetterStatus, FailedTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from redrive.core.breaker import BreakerRules
    from redrive.core.letter import AfterFailure, Category, Letter
    from redrive.sources.workflow.policies import AnyPolicy
    from redrive.sources.workflow.port import QueueSettings
    from redrive.sources.workflow.retrying.running import Callback, Judge
    from redrive.sources.workflow.retrying.settled import SettledRetry
    from redrive.sources.workflow.telling import ObservabilityManager
    from redrive.stores.contract import Store

_OPEN = (DeadLetterStatus.PENDING, DeadLetterStatus.RETRYING, DeadLetterStatus.EXHAUSTED)


class DeadLetterQueue:
    """
    Keeps failed workflows and retries them.

    *max_size* is the setting `dlq_max_size` (10,000) unless given.
    *store* is a URL or an application; without it the settings name the store. *succeeded* judges what a callback
    returned; *breakers* are the rules of breakers by name, *backoffs* functions for policies such as
    `custom:name=payments`; *concurrency* bounds the retries that run at once.
    """

    def __init__(
        self,
        max_size: int | None = None,
        opensearch_client: object = None,
        observability_manager: ObservabilityManager | None = None,
        *,
        store: object = None,
        queue: str = "workflow",
        jitter: str = "none",
        succeeded: Judge = succeeded,
        breakers: Mapping[str, BreakerRules] | None = None,
        backoffs: Mapping[str, Callable[[int], float]] | None = None,
        concurrency: int = 10,
    ) -> None:
        if opensearch_client is not None:
            raise NotSupported(
                "cannot keep tasks in OpenSearch yet: this version keeps them in SQLite or PostgreSQL; leave "
                "opensearch_client out, and give store='sqlite:///redrive.db' or 'postgresql://…'"
            )
        self._home, self._is_own = open_home(store)
        self.max_size = self._home.settings.dlq_max_size if max_size is None else max_size
        self.queue, self._jitter = queue, jitter
        _refuse_nonsense(max_size=self.max_size, concurrency=concurrency)
        for name, function in (backoffs or {}).items():
            self._home.backoffs.add(name, function)
        self._tasks = Tasks(self._store, queue)
        self._counting = Counting(self._home, queue, observability_manager)
        self._lock = asyncio.Lock()
        self._is_open = False
        self._processor = RetryProcessor(
            self._home,
            queue,
            judge=succeeded,
            breakers=breakers or {},
            concurrency=concurrency,
            settled=self._counting.settled,
        )

    @property
    def settings(self) -> QueueSettings:
        """The settings that the queue goes by: `dlq_*` and the lease."""
        return self._home.settings

    async def _store(self) -> Store:
        async with self._lock:
            if not self._is_open:
                await self._home.open()
                self._is_open = True
        return self._home.store

    async def shutdown(self) -> None:
        """Stop the processor, and close the store if the queue opened it."""
        await self.stop_retry_processor()
        if self._is_own and self._is_open:
            self._is_open = False
            await self._home.close()

    # ------------------------------------------------------------------ in

    async def enqueue(  # noqa: PLR0917 - the document's own arguments, in its order
        self,
        task_id: str,
        task: dict[str, Any],
        repos: Iterable[str],
        error: BaseException | str,
        retry_policy: AnyPolicy | None = None,
        max_retries: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        error_category: Category | str | None = None,
        *,
        breaker: str | None = None,
        after: Iterable[str] = (),
        after_failure: AfterFailure = "wait",
        by_category: bool = False,
    ) -> FailedTask:
        """
        Keep a failed task; it is durable once this returns.

        The policy is *retry_policy*, else that of the category if one is given or *by_category* is true, else the
        setting `dlq_default_retry_policy`. *breaker* is the task's `adapter` unless given. The task waits for the
        tasks *after*; *after_failure* says what it does once one of them is dead: wait on, run, or fail.
        Raise QueueFull, TaskNotFound (an unknown *after*), DraftError, PolicyError or StoreUnavailable.
        """
        store, home = await self._store(), self._home
        asked = RetryWishes(retry_policy, max_retries, error_category, breaker, by_category, self._jitter)
        agreed = agree(task, error, asked, home.settings)
        draft = mapping.draft_of(
            new_id(),
            self.queue,
            named(task_id),
            Call(dict(task), list(repos)),
            agreed.failure,
            home.backoffs.bound(agreed.policy),
            agreed.terms,
            home.clock.draw(),
        )
        told, others = metadata_of(metadata or {}, KIND), await self._tasks.after(task_id, after)
        draft = mapping.with_metadata(draft, told, others, after_failure)
        await self._refuse_overflow(store, task_id)
        [receipt] = await store.put([draft])
        if receipt.spooled:
            found = task_of(changes.accepted(draft, unix_ms() * 1_000))
            self._counting.spooled(found)
            return found
        kept = await store.get(receipt.id)
        if kept is None:
            raise TaskNotFound(task_id)  # it was purged in this moment
        self._counting.enqueued(found := task_of(kept), duplicate=receipt.duplicate)
        return found

    async def _refuse_overflow(self, store: Store, task_id: str) -> None:
        """Raise QueueFull if there is no room; a task that is in the queue already needs none."""
        try:
            if statistics.size_of(await store.tallies(), self.queue) < self.max_size:
                return
        except StoreUnavailable:  # the put says so, too, unless a spool takes the task
            return
        known = await self._tasks.newest(task_id)
        if known is None or known.status in OVER:
            raise QueueFull(self.queue, self.max_size)

    # ------------------------------------------------------------------ looking

    async def list_tasks(
        self, status: DeadLetterStatus | str | None = None, limit: int | None = 100
    ) -> list[FailedTask]:
        """Return tasks, oldest first; without *status* the pending, retrying and exhausted ones."""
        wanted = _OPEN if status is None else (DeadLetterStatus(status),)
        return [task_of(letter) for letter in await self._tasks.oldest(wanted, limit)]

    async def get_task(self, task_id: str) -> FailedTask | None:
        """Return the newest task of that id, also one that is over while it is kept; None if there is none."""
        letter = await self._tasks.newest(task_id)
        return None if letter is None else task_of(letter)

    async def get_statistics(self) -> dict[str, Any]:
        """Return the numbers of the whole queue; lifetime numbers are shared by all processes."""
        store = await self._store()
        tallies = await store.tallies()
        return statistics.statistics(
            tallies,
            await self._tasks.running() if statistics.is_any_running(tallies, self.queue) else [],
            await store.add_up(self.queue, {}),
            await store.workers(),
            queue=self.queue,
            max_size=self.max_size,
            interval=self._interval,
        )

    @property
    def _interval(self) -> float:
        running = self._processor.is_running
        return self._processor.interval if running else float(self._home.settings.dlq_retry_interval_seconds)

    # ------------------------------------------------------------------ acting

    async def retry_task(self, task_id: str, *, callback: Callback | None = None) -> dict[str, Any]:
        """
        Run the task now and return `{"success", "error", …}`; an open breaker does not stop a person.

        The callback is that of `start_retry_processor` unless given. Raise TaskNotFound, or SourceError without a
        callback.
        """
        store, letter = await self._store(), await self._tasks.known(task_id)
        if callback is None and self._processor.callback is None:
            raise SourceError(
                f"cannot retry task {task_id!r} in this process: it has no callback; give callback=, or call "
                "start_retry_processor(callback) first"
            )
        was_dead = letter.status is Status.FAILED
        if was_dead:
            await self._replay(store, letter)
        stays = (letter.applied_policy or letter.policy or "never") if was_dead else None
        done = await self._processor.run_by_hand(letter.id, callback, stays=stays)
        if done is None:
            return _refused(task_id, await self._tasks.known(task_id))
        return await self._told(task_id, done)

    async def _replay(self, store: Store, letter: Letter) -> None:
        try:
            await store.act("replay", [letter.id], by=self._by, reason="retry_task")
        except MoveRefused:
            return  # another process replayed it first: `take` says who has it

    async def _told(self, task_id: str, done: SettledRetry) -> dict[str, Any]:
        task = await self.get_task(task_id)
        good = isinstance(done.outcome, Succeeded) and done.accepted
        status = None if task is None else str(task.status)
        return {"success": good, "error": _error(done), "task_id": task_id, "status": status, "result": done.result}

    async def archive_task(self, task_id: str) -> bool:
        """Take a task out of the active queue; its record stays. False if it is unknown, runs, or is over already."""
        store, letter = await self._store(), await self._tasks.newest(task_id)
        verb = None if letter is None else VERBS.get(letter.status)
        if letter is None or verb is None:
            return False
        try:
            await store.act(verb, [letter.id], by=self._by, reason="archive_task", adds=(self.queue, {"archived": 1}))
        except MoveRefused:  # it began to run in this moment
            return False
        self._counting.archived(letter)
        return True

    async def clear_all(self) -> int:
        """
        Archive and purge the pending and exhausted tasks of this queue; return how many.

        Those that run stay, and those that a letter outside of them waits for.
        """
        store = await self._store()
        found = {letter.id: letter.status async for letter in self._tasks.matching("status:pending,failed")}
        gone = await clear(store, found, self._by, self.queue, self._counting.archived)
        await store.record(self._by, "clear_all", f"queue {self.queue}", gone, "clear_all")
        return gone

    @property
    def _by(self) -> str:
        return self._home.settings.by or "workflow"

    # ------------------------------------------------------------------ the processor

    async def start_retry_processor(self, callback: Callback, check_interval_seconds: float | None = None) -> None:
        """Run due tasks through `callback(task, repos)` in the background, in cycles of *check_interval_seconds*."""
        if check_interval_seconds is not None:
            _refuse_interval(check_interval_seconds)
        await self._store()
        default = float(self._home.settings.dlq_retry_interval_seconds)
        await self._processor.start(callback, default if check_interval_seconds is None else check_interval_seconds)

    async def stop_retry_processor(self) -> None:
        """Stop; what runs is given back, and nothing stays in retrying."""
        await self._processor.stop()

    async def run_cycle(self, callback: Callback | None = None) -> int:
        """Run one cycle now and return how many tasks ran: for tests, and for cron."""
        await self._store()
        self._processor.callback = callback or self._processor.callback
        if self._processor.callback is None:
            raise SourceError("cannot run a cycle without a callback; give one: run_cycle(callback)")
        await self._processor.rescue()
        async with self._processor.kept_alive():
            return await self._processor.cycle()


def _refuse_nonsense(**numbers: object) -> None:
    problems = [
        f"{name} is {str(number)[:40]} and must be a whole number of 1 or more"
        for name, number in numbers.items()
        if type(number) is not int or number < 1
    ]
    if problems:
        raise SettingsError(problems)


def _refuse_interval(seconds: object) -> None:
    if isinstance(seconds, int | float) and 0 < seconds < math.inf:
        return
    raise SettingsError([f"check_interval_seconds is {str(seconds)[:40]} and must be a number of seconds above 0"])


def _error(done: SettledRetry) -> str | None:
    if not done.accepted:
        return "its lease ended while it ran, and another process took it back: its result was not kept"
    return None if done.move.failure is None else done.move.failure.message


def _refused(task_id: str, letter: Letter) -> dict[str, Any]:
    why = f"is {mapping.status_of(letter)}"
    if letter.status is Status.IN_FLIGHT:
        why = f"is being retried by {letter.worker}"
    elif letter.status is Status.PENDING:
        why = mapping.waits_for(letter)
    return {
        "success": False,
        "error": why,
        "task_id": task_id,
        "status": str(mapping.status_of(letter)),
        "result": None,
    }
