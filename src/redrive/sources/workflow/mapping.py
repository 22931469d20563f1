"""
Letters and tasks.

Owns how a failed task is kept as a letter, and how a letter is read as a task. What the queue itself must know of a
task (its first error, its retries, how its policy was chosen, its breaker) stands in the letter's headers, so that
the payload and the metadata are the user's alone. Pure: knows no store and no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from redrive.core.decide import Counted, Failed, decide
from redrive.core.following import BY_CATEGORY, CHOICE, JITTER, RETRIES, follows, is_never
from redrive.core.letter import Draft, Letter, Priority, Status
from redrive.core.policy import RetryPolicy as Policy
from redrive.core.why import Why, why_of
from redrive.errors import PolicyError
from redrive.sources.workflow import policies
from redrive.sources.workflow.types import DeadLetterStatus, FailedTask

if TYPE_CHECKING:
    from redrive.core.letter import AfterFailure, Failure, Try

KIND = "workflow"
_ERROR, _BREAKER = "workflow-error", "workflow-breaker"  # headers; `core.following` has those of the policy
_PRIORITIES = {"high": Priority.HIGH, "medium": Priority.MEDIUM, "normal": Priority.MEDIUM, "low": Priority.LOW}


class Terms(NamedTuple):
    """What was agreed about the retries of a task."""

    max_retries: int
    jitter: str = "none"
    by_category: bool = False  # the policy follows the newest failure
    breaker: str = ""
    error: str = ""  # the first


class Call(msgspec.Struct, frozen=True):
    """What the callback gets."""

    task: dict[str, Any]
    repos: list[str]


_read_call = msgspec.json.Decoder(Call)


# ---------------------------------------------------------------------- in


def draft_of(  # noqa: PLR0917 - each is one part of the letter
    letter_id: str, queue: str, task_id: str, call: Call, failure: Failure, policy: Policy, terms: Terms, draw: float
) -> Draft:
    """Return the letter to be: it waits for its first retry, or is dead at once if there is none."""
    move = decide(Counted(1), Failed(failure), policy, draw)
    return Draft(
        letter_id,
        queue,
        KIND,
        msgspec.json.encode(call),
        key=task_id,
        idempotency_key=task_id,
        delay=move.delay,
        policy=policy.text,
        headers=_headers(terms),
        failure=failure,
        attempts=1,
        retry=move.to is Status.PENDING,
        again=True,
        counters=queue,
        draw=draw,
    )


def with_metadata(
    draft: Draft, metadata: dict[str, Any], after: tuple[str, ...], after_failure: AfterFailure = "wait"
) -> Draft:
    """Return *draft* with the user's metadata, the priority that it names, and the letters that it waits for."""
    waits: dict[str, Any] = {"after": after, "after_failure": after_failure}
    return msgspec.structs.replace(draft, metadata=metadata, priority=priority_of(metadata), **waits)


def _headers(terms: Terms) -> tuple[tuple[str, bytes], ...]:
    told = {
        _ERROR: terms.error,
        RETRIES: str(terms.max_retries),
        CHOICE: BY_CATEGORY if terms.by_category else "",
        JITTER: "" if terms.jitter == "none" else terms.jitter,
        _BREAKER: terms.breaker,
    }
    return tuple((name, value.encode("utf-8", "replace")) for name, value in told.items() if value)


def priority_of(metadata: dict[str, Any]) -> Priority:
    """Return the priority that `metadata["priority"]` names; medium if it names none."""
    named = metadata.get("priority")
    return _PRIORITIES.get(named.lower(), Priority.MEDIUM) if isinstance(named, str) else Priority.MEDIUM


# ---------------------------------------------------------------------- out


def call_of(letter: Letter) -> Call:
    """Return what the callback gets; raise ValueError if the payload was edited to something else."""
    return _read_call.decode(letter.payload)


def terms_of(letter: Letter) -> Terms:
    """Return what was agreed when the task was enqueued."""
    told = {name: value.decode("utf-8", "replace") for name, value in letter.headers}
    retries = told.get(RETRIES, "")
    return Terms(
        int(retries) if retries.isdecimal() else policy_of(letter.policy).max_attempts - 1,
        told.get(JITTER, "none"),
        told.get(CHOICE) == BY_CATEGORY,
        told.get(_BREAKER, ""),
        told.get(_ERROR, ""),
    )


def policy_after(letter: Letter, failure: Failure) -> Policy:
    """Return the policy that decides after *failure*: the caller's own, or that of the failure's category."""
    if failure.terminal:
        return Policy.NEVER
    followed = follows(letter.headers)
    return policy_of(letter.policy) if followed is None else followed.policy(failure.category)


def policy_of(text: str | None) -> Policy:
    """Return the policy behind the *text* that a letter carries; no text is `never`."""
    try:
        return Policy.parse(text or "never")
    except PolicyError:  # another version of redrive wrote it
        return Policy.EXPONENTIAL


def status_of(letter: Letter) -> DeadLetterStatus:
    """Return the task's status. A dead letter whose policy is never waits for a person: it shows as pending."""
    match letter.status:
        case Status.IN_FLIGHT:
            return DeadLetterStatus.RETRYING
        case Status.DELIVERED:
            return DeadLetterStatus.COMPLETED
        case Status.ARCHIVED:
            return DeadLetterStatus.ARCHIVED
        case Status.FAILED if not is_never(letter.applied_policy):
            return DeadLetterStatus.EXHAUSTED
    return DeadLetterStatus.PENDING


def retries_of(letter: Letter) -> int:
    """Return how many retries of this cycle have ended; the run that began it, here or elsewhere, was no retry."""
    return max(0, letter.attempts - 1 - (letter.status is Status.IN_FLIGHT))


def _began_elsewhere(tries: tuple[Try, ...]) -> bool:
    return bool(tries) and why_of(tries[0].why) in (Why.FAILED_ELSEWHERE, Why.COLLECTED)


def _all_retries(letter: Letter) -> int:
    """Return how many runs have ended here, over all cycles."""
    before = sum(max(0, cycle.attempts - _began_elsewhere(cycle.tries)) for cycle in letter.failure_history)
    here = letter.attempts - _began_elsewhere(letter.tries) - (letter.status is Status.IN_FLIGHT)
    return before + max(0, here)


def task_of(letter: Letter) -> FailedTask:
    """Return *letter* as a task; a payload that was edited to something else shows as an empty task."""
    terms = terms_of(letter)
    try:
        call = call_of(letter)
    except (msgspec.DecodeError, UnicodeDecodeError):
        call = Call({}, [])
    waits = letter.status is Status.PENDING
    return FailedTask(
        task_id=letter.key or letter.idempotency_key or letter.id,
        task=call.task,
        repos=call.repos,
        error=terms.error or letter.last_error or "",
        failed_at=letter.created_at,
        retry_count=retries_of(letter),
        max_retries=terms.max_retries,
        retry_policy=policies.word_of(letter.applied_policy or letter.policy),
        next_retry_at=letter.due_at if waits else None,
        status=status_of(letter),
        metadata=letter.metadata,
        error_category=letter.category,
        last_error=letter.last_error or terms.error or None,
        total_attempts=_all_retries(letter),
        updated_at=letter.updated_at,
        letter_id=letter.id,
        held=_held(letter) if waits else None,
    )


def _held(letter: Letter) -> str | None:
    if why_of(letter.why) is Why.HELD_BY_BREAKER:
        return f"{letter.why} until {letter.due_at.isoformat()}"
    return waits_for(letter) if letter.waits_for else None


def waits_for(letter: Letter) -> str:
    """Return how many tasks it waits for, in words."""
    return f"waits for {letter.waits_for} other task{'s' if letter.waits_for > 1 else ''}"
