"""
The queue of failed workflows, with the names that its users know.

Owns the methods; each is a few steps over the store. Rules are elsewhere: which policy (`policies`), how a task is kept
(`mapping`), when retries run (`processor`), the numbers (`statistics`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from redrive.core.decide import Succeeded
from redrive.core.facts import Enqueued
from redrive.core.letter import Category, Status
from redrive.core.query import parse
from redrive.core.query.terms import quoted
from redrive.core.why import Why
from redrive.drafts import metadata_of
from redrive.engine.clock import new_id
from redrive.errors import DraftError, MoveRefused, NotSupported, QueueFull, SourceError, TaskNotFound
from redrive.sources.workflow import mapping, policies, statistics
from redrive.sources.workflow.mapping import KIND, Call, Terms, task_of
from redrive.sources.workflow.port import open_home
from redrive.sources.workflow.processor import RetryProcessor
from redrive.sources.workflow.running import failure_of, succeeded
from redrive.sources.workflow.telling import Teller
from redrive.sources.workflow.types import DeadLetterStatus, FailedTask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from redrive.core.breaker import BreakerRules
    from redrive.core.letter import Letter
    from redrive.sources.workflow.policies import AnyPolicy
    from redrive.sources.workflow.processor import SettledRetry
    from redrive.sources.workflow.running import Callback, Judge
    from redrive.sources.workflow.telling import ObservabilityManager
    from redrive.stores.contract import Store

_PAGE = 500
_OPEN = (DeadLetterStatus.PENDING, DeadLetterStatus.RETRYING, DeadLetterStatus.EXHAUSTED)
_KEPT_AS = {
    DeadLetterStatus.PENDING: "pending,failed",
    DeadLetterStatus.RETRYING: "in_flight",
    DeadLetterStatus.EXHAUSTED: "failed",
    DeadLetterStatus.COMPLETED: "delivered",
    DeadLetterStatus.ARCHIVED: "archived",
}
_LONGEST_CHAIN = 1_000  # tasks that are looked at for a cycle of dependencies


class DeadLetterQueue:
    """
    Keeps failed workflows and retries them.

    *store* is a URL or an application; without it the settings name the store. *succeeded* judges what a callback
    returned; *breakers* are the rules of breakers by name; *concurrency* bounds the retries that run at once.
    """

    def __init__(
        self,
        max_size: int = 10_000,
        opensearch_client: object = None,
        observability_manager: ObservabilityManager | None = None,
        *,
        store: object = None,
        queue: str = "workflow",
        jitter: str = "none",
        succeeded: Judge = succeeded,
        breakers: Mapping[str, BreakerRules] | None = None,
        concurrency: int = 10,
    ) -> None:
        if opensearch_client is not None:
            raise NotSupported(
                "cannot keep tasks in OpenSearch yet: this version keeps them in SQLite or PostgreSQL; leave "
                "opensearch_client out, and give store='sqlite:///redrive.db' or 'postgresql://…'"
            )
        self.max_size, self.queue, self._jitter = max_size, queue, jitter
        self._home, self._is_own = open_home(store)
        self._tell = Teller(observability_manager)
        self._lock = asyncio.Lock()
        self._is_open = False
        self._processor = RetryProcessor(
            self._home,
            queue,
            judge=succeeded,
            breakers=breakers or {},
            concurrency=concurrency,
            settled=self._count,
        )

    @property
    def settings(self) -> Any:
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
        by_category: bool = False,
    ) -> FailedTask:
        """
        Keep a failed task; it is durable once this returns.

        The policy is *retry_policy*, else that of the category if one is given or *by_category* is true, else the
        setting `dlq_default_retry_policy`. *breaker* is the task's `adapter` unless given. The task waits for the
        tasks *after*. Raise QueueFull, TaskNotFound (an unknown *after*), DraftError, PolicyError or StoreUnavailable.
        """
        store, settings = await self._store(), self._home.settings
        failure = failure_of(error, _category(error_category))
        chosen = by_category or error_category is not None
        retries = settings.dlq_default_max_retries if max_retries is None else policies.checked(max_retries)
        given = retry_policy or (
            policies.for_category(failure.category) if chosen else settings.dlq_default_retry_policy
        )
        policy = policies.policy_of(given, retries, self._jitter)
        adapter = task.get("adapter") if isinstance(task, dict) else None
        terms = Terms(
            retries,
            self._jitter,
            chosen and retry_policy is None,
            breaker if breaker is not None else adapter if isinstance(adapter, str) else "",
            failure.message,
        )
        call = Call(dict(task), list(repos))
        draft = mapping.draft_of(
            new_id(), self.queue, _name(task_id), call, failure, policy, terms, self._home.clock.draw()
        )
        told = metadata_of(metadata or {}, KIND)
        draft = mapping.with_metadata(draft, told, await self._after(task_id, after))
        await self._refuse_overflow(store, task_id)
        [receipt] = await store.put([draft])
        self._home.hub(Enqueued(queue=self.queue, kind=KIND, count=1, duplicates=int(receipt.duplicate)))
        kept = await store.get(receipt.id)
        if kept is None:
            raise TaskNotFound(task_id)  # it was purged in this moment
        found = task_of(kept)
        if not draft.retry and found.status is DeadLetterStatus.EXHAUSTED:
            await store.add_up(self.queue, {"exhausted": 1})
        self._tell.info(
            "task enqueued", task_id=task_id, error_category=found.error_category, retry_policy=str(found.retry_policy)
        )
        return found

    async def _refuse_overflow(self, store: Store, task_id: str) -> None:
        """Raise QueueFull if there is no room; a task that is in the queue already needs none."""
        if statistics.size_of(await store.tallies(), self.queue) < self.max_size:
            return
        known = await self._newest(task_id)
        if known is None or known.status in (Status.DELIVERED, Status.ARCHIVED):
            raise QueueFull(self.queue, self.max_size)

    async def _after(self, task_id: str, names: Iterable[str]) -> tuple[str, ...]:
        """Return the letters of the tasks *names*; raise TaskNotFound, or DraftError if they wait for this one."""
        given = [names] if isinstance(names, str) else list(names)
        if not given:
            return ()
        letters = [await self._known(name) for name in given]
        waiting, seen = deque(letters), set[str]()
        while waiting and len(seen) < _LONGEST_CHAIN:
            letter = waiting.popleft()
            if letter.key == task_id:
                raise DraftError(f"cannot let task {task_id!r} wait for {given}: one of them waits for it already")
            if letter.id not in seen:
                seen.add(letter.id)
                waiting += [each for name in letter.after if (each := await self._home.store.get(name)) is not None]
        return tuple(letter.id for letter in letters)

    # ------------------------------------------------------------------ looking

    async def list_tasks(
        self, status: DeadLetterStatus | str | None = None, limit: int | None = 100
    ) -> list[FailedTask]:
        """Return tasks, oldest first; without *status* the pending, retrying and exhausted ones."""
        wanted = _OPEN if status is None else (DeadLetterStatus(status),)
        store, oldest = await self._store(), deque[str](maxlen=limit)
        kept_as = dict.fromkeys(word for each in wanted for word in _KEPT_AS[each].split(","))
        async for letter in self._letters(f"status:{','.join(kept_as)}"):
            if mapping.status_of(letter) in wanted:
                oldest.append(letter.id)
        letters = [await store.get(letter_id) for letter_id in reversed(oldest)]
        return [task_of(letter) for letter in letters if letter is not None]

    async def _letters(self, query: str) -> AsyncIterator[Letter]:
        """Yield the letters of this queue that match, newest first, without payloads."""
        store, cursor = await self._store(), None
        parsed = parse(f"queue:{quoted(self.queue)} kind:{KIND} {query}")
        while True:
            page = await store.find(parsed, cursor=cursor, limit=_PAGE, payloads=False)
            for letter in page.letters:
                yield letter
            if page.cursor is None:
                return
            cursor = page.cursor

    async def get_task(self, task_id: str) -> FailedTask | None:
        """Return the newest task of that id, also one that is over while it is kept; None if there is none."""
        letter = await self._newest(task_id)
        return None if letter is None else task_of(letter)

    async def _newest(self, task_id: str) -> Letter | None:
        store, mine = await self._store(), f"queue:{quoted(self.queue)} kind:{KIND}"
        for field in ("idempotency_key", "key"):  # the newest has the key; the second look is for copies without one
            page = await store.find(parse(f"{mine} {field}:{quoted(_name(task_id))}"), limit=1)
            if page.letters:
                return page.letters[0]
        return None

    async def _known(self, task_id: str) -> Letter:
        letter = await self._newest(task_id)
        if letter is None:
            raise TaskNotFound(task_id)
        return letter

    async def get_statistics(self) -> dict[str, Any]:
        """Return the numbers of the whole queue; lifetime numbers are shared by all processes."""
        store = await self._store()
        tallies = await store.tallies()
        return statistics.statistics(
            tallies,
            await self._running(store) if statistics.is_any_running(tallies, self.queue) else [],
            await store.add_up(self.queue, {}),
            await store.workers(),
            queue=self.queue,
            max_size=self.max_size,
            interval=self._interval,
        )

    async def _running(self, store: Store) -> list[Letter]:
        """Return the letters that run now; there are as many as callbacks run at once, in all processes."""
        running = parse(f"queue:{quoted(self.queue)} kind:{KIND} status:in_flight")
        return (await store.find(running, limit=_PAGE, payloads=False)).letters

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
        store, letter = await self._store(), await self._known(task_id)
        if callback is None and self._processor.callback is None:
            raise SourceError(
                f"cannot retry task {task_id!r} in this process: it has no callback; give callback=, or call "
                "start_retry_processor(callback) first"
            )
        is_last = letter.status is Status.FAILED
        if is_last:
            await self._replay(store, letter)
        claim = await store.take(letter.id, lease=float(self._home.settings.lease_seconds), worker=self._processor.name)
        if claim is None:
            return _refused(task_id, await self._known(task_id))
        await store.add_up(self.queue, {"manually_retried": 1})
        done = await self._processor.run(claim, callback or self._processor.callback, is_last=is_last)
        return await self._told(task_id, done)

    async def _replay(self, store: Store, letter: Letter) -> None:
        try:
            await store.act("replay", [letter.id], by=self._by, reason="retry_task")
        except MoveRefused:
            return  # another process replayed it first: `take` says who has it

    async def _told(self, task_id: str, done: SettledRetry) -> dict[str, Any]:
        task = await self.get_task(task_id)
        good = isinstance(done.outcome, Succeeded)
        error = None if good or done.move.failure is None else done.move.failure.message
        status = None if task is None else str(task.status)
        return {"success": good, "error": error, "task_id": task_id, "status": status, "result": done.result}

    async def archive_task(self, task_id: str) -> bool:
        """Take a task out of the active queue; its record stays. False if it is unknown, runs, or is over already."""
        store, letter = await self._store(), await self._newest(task_id)
        verb = None if letter is None else _VERBS.get(letter.status)
        if letter is None or verb is None:
            return False
        try:
            await store.act(verb, [letter.id], by=self._by, reason="archive_task")
        except MoveRefused:  # it began to run in this moment
            return False
        await store.add_up(self.queue, {"archived": 1})
        self._tell.info("task archived", task_id=task_id)
        return True

    async def clear_all(self) -> int:
        """Archive and purge the pending and exhausted tasks of this queue; return how many. Running ones stay."""
        store, found = await self._store(), list[tuple[str, str]]()
        async for letter in self._letters("status:pending,failed"):
            found.append((letter.id, _VERBS[letter.status]))
        gone = 0
        for letter_id, verb in found:
            try:
                await store.act(verb, [letter_id], by=self._by, reason="clear_all")
                await store.act("purge", [letter_id], by=self._by, reason="clear_all")
            except MoveRefused:  # it began to run, or another person acted on it
                continue
            gone += 1
        await store.record(self._by, "clear_all", f"queue {self.queue}", gone, "clear_all")
        return gone

    @property
    def _by(self) -> str:
        return self._home.settings.by or "workflow"

    # ------------------------------------------------------------------ the processor

    async def start_retry_processor(self, callback: Callback, check_interval_seconds: float | None = None) -> None:
        """Run due tasks through `callback(task, repos)` in the background, in cycles of *check_interval_seconds*."""
        await self._store()
        seconds = check_interval_seconds or float(self._home.settings.dlq_retry_interval_seconds)
        await self._processor.start(callback, seconds)

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
        return await self._processor.cycle()

    async def _count(self, done: SettledRetry) -> None:
        """Count a settled retry for the lifetime numbers, and tell of it."""
        task_id, move = done.claim.letter.key, done.move
        policy, category = str(policies.word_of(move.policy)), move.failure and str(move.failure.category)
        if isinstance(done.outcome, Succeeded):
            await self._home.store.add_up(self.queue, {"retry_success": 1})
            self._tell.info("retry succeeded", task_id=task_id)
            return
        is_over = move.to is Status.FAILED and move.why != Why.TERMINAL and not mapping.is_never(move.policy)
        await self._home.store.add_up(self.queue, {"retry_failed": 1} | ({"exhausted": 1} if is_over else {}))
        tell = "task exhausted" if is_over else "retry failed"
        self._tell.error(tell, task_id=task_id, error_category=category, retry_policy=policy)


_VERBS = {Status.PENDING: "cancel", Status.FAILED: "archive"}


def _name(task_id: object) -> str:
    if isinstance(task_id, str) and task_id:
        return task_id
    raise DraftError(f"cannot use {str(task_id)[:40]!r} as a task_id: it must be text, such as 'wf_abc123'")


def _category(given: Category | str | None) -> Category | None:
    try:
        return None if given is None else Category(given)
    except ValueError:
        words = ", ".join(Category)
        raise DraftError(f"cannot use {str(given)[:40]!r} as error_category: it must be one of {words}") from None


def _refused(task_id: str, letter: Letter) -> dict[str, Any]:
    why = f"is {mapping.status_of(letter)}"
    if letter.status is Status.IN_FLIGHT:
        why = f"is being retried by {letter.worker}"
    elif letter.status is Status.PENDING:
        why = f"waits for {letter.waits_for} other tasks"
    return {
        "success": False,
        "error": why,
        "task_id": task_id,
        "status": str(mapping.status_of(letter)),
        "result": None,
    }
