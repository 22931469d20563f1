"""
What is agreed about a task when it comes in.

Owns which policy, how many retries and which breaker a task gets, and how its names are checked. Pure: knows no store
and no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.core.letter import Category
from redrive.core.policy import RetryPolicy as Policy
from redrive.errors import DraftError
from redrive.sources.workflow import policies
from redrive.sources.workflow.mapping import Terms
from redrive.sources.workflow.retrying.running import failure_of

if TYPE_CHECKING:
    from redrive.core.letter import Failure
    from redrive.sources.workflow.policies import AnyPolicy
    from redrive.sources.workflow.port import QueueSettings


class RetryWishes(NamedTuple):
    """What the caller wishes for the retries of a task; None where the caller says nothing."""

    retry_policy: AnyPolicy | None = None
    max_retries: int | None = None
    error_category: Category | str | None = None
    breaker: str | None = None
    by_category: bool = False
    jitter: str = "none"


class Agreed(NamedTuple):
    """What was agreed."""

    failure: Failure
    policy: Policy
    terms: Terms


def agree(task: object, error: BaseException | str, asked: RetryWishes, settings: QueueSettings) -> Agreed:
    """Return what is agreed about *task*, which failed with *error*; raise DraftError or PolicyError."""
    failure = failure_of(error, _category(asked.error_category))
    chosen = asked.by_category or asked.error_category is not None
    retries = policies.checked(_retries(asked, settings))
    given = asked.retry_policy or (
        policies.for_category(failure.category) if chosen else settings.dlq_default_retry_policy
    )
    follows = chosen and asked.retry_policy is None
    terms = Terms(retries, asked.jitter, follows, _breaker(task, asked.breaker), failure.message)
    return Agreed(failure, policies.policy_of(given, retries, asked.jitter), terms)


def _retries(asked: RetryWishes, settings: QueueSettings) -> int:
    if asked.max_retries is not None:
        return asked.max_retries
    if isinstance(asked.retry_policy, Policy):  # a value says by itself how often
        return asked.retry_policy.max_attempts - 1
    return settings.dlq_default_max_retries


def named(task_id: object) -> str:
    """Return *task_id*; raise DraftError unless it is text."""
    if isinstance(task_id, str) and task_id:
        return task_id
    raise DraftError(f"cannot use {str(task_id)[:40]!r} as a task_id: it must be text, such as 'wf_abc123'")


def _breaker(task: Any, given: str | None) -> str:
    if given is not None:
        return given
    adapter = task.get("adapter") if isinstance(task, dict) else None
    return adapter if isinstance(adapter, str) else ""


def _category(given: Category | str | None) -> Category | None:
    try:
        return None if given is None else Category(given)
    except ValueError:
        words = ", ".join(Category)
        raise DraftError(f"cannot use {str(given)[:40]!r} as error_category: it must be one of {words}") from None
