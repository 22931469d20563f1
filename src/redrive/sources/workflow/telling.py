"""
What the queue announces and counts when a task moves.

Owns the lifetime numbers, the fact behind the metrics, and the sentences for the user's own observability object: ids
and words, never a task, an error's text or metadata. What that object raises changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from redrive.core.decide import Succeeded
from redrive.core.facts import Enqueued, TaskMoved
from redrive.core.following import is_never
from redrive.core.letter import Status
from redrive.signals.log import write
from redrive.sources.workflow import mapping, policies
from redrive.sources.workflow.types import DeadLetterStatus

if TYPE_CHECKING:
    from redrive.core.letter import Letter
    from redrive.sources.workflow.port import Home
    from redrive.sources.workflow.retrying.settled import SettledRetry
    from redrive.sources.workflow.types import FailedTask

    Event = Literal["enqueued", "retried", "succeeded", "exhausted", "archived"]


class ObservabilityManager(Protocol):
    """Any object with these two methods."""

    def log_info(self, message: str, *, attributes: dict[str, Any]) -> object:
        """Take a sentence about something that went as it should."""

    def log_error(self, message: str, *, attributes: dict[str, Any]) -> object:
        """Take a sentence about a failure."""


class Teller:
    """Tells *manager*, if there is one."""

    def __init__(self, manager: ObservabilityManager | None) -> None:
        self._manager, self._has_warned = manager, False

    def info(self, message: str, **attributes: Any) -> None:
        """Tell of something that went as it should."""
        if self._manager is not None:
            self._tell(self._manager.log_info, message, attributes)

    def error(self, message: str, **attributes: Any) -> None:
        """Tell of a failure."""
        if self._manager is not None:
            self._tell(self._manager.log_error, message, attributes)

    def _tell(self, say: Any, message: str, attributes: dict[str, Any]) -> None:
        try:
            say(message, attributes=attributes)
        except Exception as error:  # noqa: BLE001 - it is the user's, and a task must not suffer from it
            if not self._has_warned:
                self._has_warned = True
                told = {"error_type": type(error).__name__, "told": "the observability_manager raised"}
                write("warning", "redrive.workflow.observability", told)


class Counting:
    """Counts and tells what becomes of the tasks of one queue."""

    def __init__(self, home: Home, queue: str, manager: ObservabilityManager | None) -> None:
        self._home, self._queue, self._tell = home, queue, Teller(manager)

    def enqueued(self, task: FailedTask, *, duplicate: bool) -> None:
        """Tell of a task that came in; the store counted one that was exhausted at once, in the same transaction."""
        self._home.hub(Enqueued(queue=self._queue, kind=mapping.KIND, count=1, duplicates=int(duplicate)))
        category, policy = task.error_category or "", str(task.retry_policy)
        self._moved("enqueued", category, policy)
        if task.status is DeadLetterStatus.EXHAUSTED:
            self._moved("exhausted", category, policy)
        self._tell.info("task enqueued", task_id=task.task_id, error_category=category, retry_policy=policy)

    def spooled(self, task: FailedTask) -> None:
        """Tell of a task that came in while the store is away; its lifetime numbers are counted when it gets there."""
        category, policy = task.error_category or "", str(task.retry_policy)
        self._moved("enqueued", category, policy)
        self._tell.info("task spooled", task_id=task.task_id, error_category=category, retry_policy=policy)

    def settled(self, done: SettledRetry) -> None:
        """Tell of a retry that ended, or of a task that failed without a run; `amounts_of` has its lifetime numbers."""
        move, letter = done.move, done.claim.letter
        if isinstance(done.outcome, Succeeded):
            self._moved("retried", *_traits(letter))
            self._moved("succeeded", *_traits(letter))
            self._tell.info("retry succeeded", task_id=letter.key)
            return
        category = str(move.failure.category) if move.failure is not None else ""
        policy, is_over = str(policies.word_of(move.policy)), _is_exhausted_now(done)
        if done.ran:
            self._moved("retried", category, policy)
        if is_over:
            self._moved("exhausted", category, policy)
        tell = "task exhausted" if is_over else "retry failed"
        self._tell.error(tell, task_id=letter.key, error_category=category, retry_policy=policy)

    def archived(self, letter: Letter) -> None:
        """Tell of a task that a person archived; the act counted it."""
        self._moved("archived", *_traits(letter))
        self._tell.info("task archived", task_id=letter.key)

    def _moved(self, event: Event, category: str, policy: str) -> None:
        self._home.hub(TaskMoved(queue=self._queue, event=event, category=category, policy=policy))


def amounts_of(done: SettledRetry) -> dict[str, int]:
    """Return what a retry that ended adds to the lifetime numbers."""
    good = isinstance(done.outcome, Succeeded)
    amounts = {
        "retry_success": good,
        "retry_failed": done.ran and not good,
        "exhausted": _is_exhausted_now(done),
        "manually_retried": done.by_hand,
    }
    return {name: 1 for name, counts in amounts.items() if counts}


def _is_exhausted_now(done: SettledRetry) -> bool:
    """Whether a task became exhausted, and was not before; one with the policy never waits for a person instead."""
    return done.move.to is Status.FAILED and not done.was_dead and not is_never(done.move.policy)


def _traits(letter: Letter) -> tuple[str, str]:
    return letter.category or "", str(policies.word_of(letter.applied_policy or letter.policy))
