"""
What each move does to a letter.

Owns the letter's fields from one state to the next, as plain functions that return the
changed letter. Knows no index, no lock and no token: `shelf` keeps the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from redrive.core.letter import FailureCycle, Letter, Status, instant
from redrive.core.moves import Move, line_of, logged

if TYPE_CHECKING:
    from redrive.core.letter import Draft, Failure

MAX_TRIES = 50  # of the current cycle; the newest are kept
MAX_CYCLES = 20  # in failure_history; `cycles` counts the others too
_SECOND = 1_000_000


def accepted(draft: Draft, now: int) -> Letter:
    """Return the letter that *draft* becomes; one that brings its failure is dead at once."""
    letter = Letter(
        draft.id,
        draft.queue,
        draft.kind,
        draft.payload,
        content_type=draft.content_type,
        key=draft.key,
        idempotency_key=draft.idempotency_key,
        priority=draft.priority,
        due_us=now + span(draft.delay) if draft.due_us is None else draft.due_us,
        policy=draft.policy,
        generation=draft.generation,
        origin=draft.origin,
        handler=draft.handler,
        tenant=draft.tenant,
        why="enqueued",
        cycle_us=now,
        created_us=now,
        updated_us=now,
        headers=draft.headers,
        metadata=copied(draft.metadata),
        after=draft.after,
    )
    if draft.failure is None:
        return letter
    letter = replace(letter, attempts=draft.attempts, first_failed_us=draft.first_failed_us)
    failed = now if draft.failed_us is None else draft.failed_us
    error = _error(letter, draft.failure, failed)
    tries = (line_of(Move(Status.FAILED, "collected", failure=draft.failure), at_us=now),)
    return replace(letter, status=Status.FAILED, why="collected", failed_us=failed, tries=tries, **error)


def claimed(letter: Letter, worker: str, now: int) -> Letter:
    """Return *letter* in the hands of *worker*, one attempt further."""
    return replace(letter, status=Status.IN_FLIGHT, attempts=letter.attempts + 1, worker=worker, updated_us=now)


def settled(letter: Letter, move: Move, now: int) -> Letter:
    """Return *letter* after *move*; its worker is gone, its attempt counted or given back."""
    changes: dict[str, Any] = {
        "status": move.to,
        "why": move.why,
        "worker": None,
        "attempts": letter.attempts - (not move.counts),
        "losses": letter.losses + move.loss,
        "updated_us": now,
    }
    if move.policy or move.failure is not None:
        changes["applied_policy"] = move.policy or None
    if move.to is Status.PENDING:
        changes["due_us"] = now + span(move.delay)
    if move.to is Status.FAILED:
        changes["failed_us"] = now
    if move.failure is not None:
        changes |= _error(letter, move.failure, now)
        changes["tries"] = logged(letter.tries, line_of(move, letter.attempts, now), MAX_TRIES)
    return replace(letter, **changes)


def replayed(letter: Letter, now: int, *, by: str, reason: str, plan: str, generation: int | None) -> Letter:
    """Return *letter* at the start of its next cycle, the ended one in its history."""
    return replace(
        letter,
        status=Status.PENDING,
        why="replayed",
        due_us=now,
        attempts=0,
        losses=0,
        category=None,
        error_type=None,
        last_error=None,
        fingerprint=None,
        first_failed_us=None,
        failed_us=None,
        applied_policy=None,
        plan=plan or None,
        tries=(),
        generation=letter.generation if generation is None else generation,
        cycles=letter.cycles + 1,
        cycle_us=now,
        updated_us=now,
        failure_history=(*letter.failure_history, _cycle(letter, now, by, reason, plan))[-MAX_CYCLES:],
    )


def archived(letter: Letter, now: int, *, by: str, plan: str) -> Letter:
    """Return *letter* archived; what it failed of stays readable."""
    return replace(letter, status=Status.ARCHIVED, why=f"archived by {by}", plan=plan or None, updated_us=now)


def restored(letter: Letter, to: Status, now: int, *, by: str, plan: str) -> Letter:
    """Return *letter* back in the status it was archived from."""
    return replace(letter, status=to, why=f"restored by {by}", plan=plan or None, updated_us=now)


def edited(letter: Letter, payload: bytes, content_type: str, now: int) -> Letter:
    """Return *letter* with another payload, one version further."""
    version = letter.payload_version + 1
    return replace(letter, payload=payload, content_type=content_type, payload_version=version, updated_us=now)


def span(seconds: float) -> int:
    """Return *seconds* in whole microseconds, never negative."""
    return max(0, round(seconds * _SECOND))


def copied(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return a copy that shares nothing; goes through JSON, as in every other store."""
    copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(metadata)) if metadata else {}
    return copy


def _error(letter: Letter, failure: Failure, now: int) -> dict[str, Any]:
    return {
        "category": str(failure.category),
        "error_type": failure.error_type,
        "last_error": failure.message,
        "fingerprint": failure.fingerprint,
        "release": failure.release or letter.release,
        "first_failed_us": now if letter.first_failed_us is None else letter.first_failed_us,
    }


def _cycle(letter: Letter, now: int, by: str, reason: str, plan: str) -> FailureCycle:
    return FailureCycle(
        attempts=letter.attempts,
        losses=letter.losses,
        error_type=letter.error_type or "",
        last_error=letter.last_error or "",
        category=letter.category or "",
        fingerprint=letter.fingerprint or "",
        why=letter.why or "",
        first_failed_at=letter.first_failed_at,
        failed_at=letter.failed_at,
        tries=letter.tries,
        generation=letter.generation,
        release=letter.release,
        replayed_at=instant(now),
        replayed_by=by,
        reason=reason,
        plan=plan,
    )
