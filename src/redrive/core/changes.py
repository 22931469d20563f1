"""
What each move and each operator's act does to a letter.

Owns the letter's fields from one state to the next, as functions that return the changed letter, and the
bounds on what a letter keeps. Every store gives the same answer: the memory store and SQLite call these
functions, and a contract test compares the rows of every store with them.
Knows no clock, no index and no token: the store brings its own now, and draws the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from redrive.core import following
from redrive.core.letter import FailureCycle, Letter, Status, Try, instant
from redrive.core.moves import Move
from redrive.core.why import Why

if TYPE_CHECKING:
    from collections.abc import Hashable

    from redrive.core.letter import Draft, Failure

MAX_TRIES = 50  # lines in the attempt log of the current cycle; the newest are kept
MAX_CYCLES = 20  # cycles in failure_history; the newest are kept, and `cycles` counts the others too
MAX_LOGGED = 500  # characters of an error's text in the attempt log; `last_error` keeps more of the newest
_SECOND = 1_000_000
_ENQUEUED = str(Why.ENQUEUED)  # as plain text: it is written for every letter that comes in


def accepted(draft: Draft, now: int) -> Letter:
    """Return the letter that *draft* becomes; with a failure it is dead at once, or waits for its retry."""
    created = (
        now if draft.accepted_us is None else min(draft.accepted_us, now)
    )  # clocks differ: never after its arrival
    letter = Letter(  # without names as far as can be: it is made for every letter that comes in
        draft.id, draft.queue, draft.kind, draft.payload, draft.content_type, draft.key, draft.idempotency_key,
        draft.priority, now + span(draft.delay) if draft.due_us is None else draft.due_us, 0, 0, draft.policy,
        draft.generation, draft.origin, draft.handler, draft.tenant, 0, now, created, now,
        why=_ENQUEUED, unique_in=draft.unique_in,
        headers=draft.headers, metadata=copied(draft.metadata), after=draft.after,
    )  # fmt: skip
    if draft.after_failure != "wait":
        letter = replace(letter, after_failure=draft.after_failure)
    if draft.failure is None:
        return letter
    return (_to_retry if draft.retry else _collected)(letter, draft, draft.failure, now)


def _collected(letter: Letter, draft: Draft, failure: Failure, now: int) -> Letter:
    """Return another system's dead letter."""
    letter = replace(letter, attempts=draft.attempts, first_failed_us=draft.first_failed_us)
    failed = now if draft.failed_us is None else draft.failed_us
    why = Why.COLLECTED
    tries = (line_of(Move(Status.FAILED, why, failure=failure, policy=draft.policy or ""), 0, now),)
    told = {"applied_policy": draft.policy, "tries": tries, **_error(letter, failure, failed)}
    return replace(letter, status=Status.FAILED, why=why, failed_us=failed, **told)


def _to_retry(letter: Letter, draft: Draft, failure: Failure, now: int) -> Letter:
    """Return a letter that another system tried first: pending, with that failure behind it."""
    letter = replace(letter, attempts=max(1, draft.attempts), first_failed_us=draft.first_failed_us)
    why = Why.FAILED_ELSEWHERE
    move = Move(Status.PENDING, why, delay=draft.delay, failure=failure, policy=draft.policy or "")
    error = _error(letter, failure, now if draft.failed_us is None else draft.failed_us)
    tries = (line_of(move, letter.attempts, now),)
    return replace(letter, why=why, tries=tries, applied_policy=draft.policy, **error)


def put_again(letter: Letter, draft: Draft, now: int) -> Letter | None:
    """
    Return *letter* after the draft `again` brought a newer failure of it; None if the store keeps a new letter instead.

    A letter that waits or runs keeps its attempts. One that waits keeps its due time, too, unless its policy follows
    its newest failure (`core.following`). A dead one that waits for a person goes on waiting; another dead one begins
    its next cycle with this failure, by the draft's policy. A delivered or archived one only gives its idempotency key
    away.
    """
    failure = draft.failure
    assert failure is not None  # noqa: S101 - the draft was checked
    if letter.status is Status.IN_FLIGHT:
        return replace(letter, last_error=failure.message)  # its claim settles the rest
    followed = following.move_after(letter, draft)
    if followed is not None:
        return _followed(letter, followed, now)
    if letter.status is Status.PENDING:
        move = Move(Status.PENDING, Why.FAILED_ELSEWHERE, failure=failure)
        tries = logged(letter.tries, line_of(move, letter.attempts, now))
        return replace(letter, updated_us=now, why=move.why, tries=tries, **_error(letter, failure, now))
    if letter.status is Status.FAILED:
        fresh = replayed(letter, now, by="", reason=Why.FAILED_ELSEWHERE, plan="", generation=None)
        due = now + span(draft.delay) if draft.due_us is None else draft.due_us
        fresh = replace(fresh, due_us=due, policy=draft.policy, headers=following.renewed(letter, draft))
        return (_to_retry if draft.retry else _collected)(fresh, draft, failure, now)
    return None


def _followed(letter: Letter, move: Move, now: int) -> Letter:
    """Return a letter that waits after the *move* that a failure elsewhere calls for; its attempts stay."""
    assert move.failure is not None  # noqa: S101 - it comes of one
    is_dead = move.to is Status.FAILED
    return replace(
        letter,
        status=move.to,
        why=move.why,
        due_us=letter.due_us if is_dead else now + span(move.delay),
        failed_us=now if is_dead else None,
        applied_policy=move.policy,
        updated_us=now,
        tries=tried(letter, move, now),
        **_error(letter, move.failure, now),
    )


def claimed(letter: Letter, worker: str, now: int) -> Letter:
    """Return *letter* claimed by *worker*; the claim counts an attempt."""
    return replace(letter, status=Status.IN_FLIGHT, attempts=letter.attempts + 1, worker=worker, updated_us=now)


def settled(letter: Letter, move: Move, now: int) -> Letter:
    """Return *letter* after *move*, which counts its attempt or gives it back."""
    changes: dict[str, Any] = {} if move.failure is None else _error(letter, move.failure, now)
    if move.failure is not None:
        changes["tries"] = tried(letter, move, now)
    if move.policy or move.failure is not None:
        changes["applied_policy"] = move.policy or None
    if move.to is Status.PENDING:
        changes["due_us"] = now + span(move.delay)
    if move.to is Status.FAILED:
        changes["failed_us"] = now
    return replace(
        letter,
        status=move.to,
        why=move.why,
        worker=None,
        attempts=letter.attempts - (not move.counts),
        losses=letter.losses + move.loss,
        updated_us=now,
        **changes,
    )


def likeness(letter: Letter, move: Move) -> tuple[Hashable, ...]:
    """
    Return what `settled` looks at, besides the instant: letters with equal ones come to the same.

    Two fields differ nevertheless if the move has a failure: the attempt log (`tried`) and the due time.
    """
    failure = move.failure
    return (
        move.to, move.why, move.counts, move.loss, move.policy, failure, move.delay if failure is None else None,
        letter.queue, letter.kind, letter.attempts, letter.losses, letter.first_failed_us, letter.release,
        letter.applied_policy,
    )  # fmt: skip


def tried(letter: Letter, move: Move, now: int) -> tuple[Try, ...]:
    """Return the attempt log of *letter* after a *move* with a failure."""
    return logged(letter.tries, line_of(move, letter.attempts, now))


def replayed(letter: Letter, now: int, *, by: str, reason: str, plan: str, generation: int | None) -> Letter:
    """Return *letter* at the start of its next cycle; `failure_history` keeps the cycle that ended."""
    return replace(
        letter,
        status=Status.PENDING,
        why=Why.REPLAYED,
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
    """Return *letter* archived, or cancelled if it was pending; its error stays readable."""
    return replace(letter, status=Status.ARCHIVED, why=Why.ARCHIVED_BY.naming(by), plan=plan or None, updated_us=now)


def restored(letter: Letter, to: Status, now: int, *, by: str, plan: str) -> Letter:
    """Return *letter* back in the status it was archived from."""
    return replace(letter, status=to, why=Why.RESTORED_BY.naming(by), plan=plan or None, updated_us=now)


def edited(letter: Letter, payload: bytes, content_type: str, now: int) -> Letter:
    """Return *letter* with another payload, one version further."""
    version = letter.payload_version + 1
    return replace(letter, payload=payload, content_type=content_type, payload_version=version, updated_us=now)


def line_of(move: Move, attempt: int = 0, at_us: int = 0) -> Try:
    """Return the line that a move with a failure adds to the attempt log."""
    failure = move.failure
    assert failure is not None  # noqa: S101 - only such a move has a line
    return Try(
        attempt=attempt,
        at=instant(at_us),
        why=move.why,
        error_type=failure.error_type,
        error=failure.message[:MAX_LOGGED],
        category=str(failure.category),
        rule=failure.rule,
        delay=move.delay,
        draw=move.draw,
        policy=move.policy,
        age=move.age,
        retry_after=failure.retry_after,
        place=failure.place,
        traceback=failure.traceback,
    )


def logged(tries: tuple[Try, ...], line: Try) -> tuple[Try, ...]:
    """Return the attempt log with *line*; only the newest traceback is kept, so that rows stay small."""
    if line.traceback:
        tries = tuple(replace(one, traceback="") if one.traceback else one for one in tries)
    return (*tries, line)[-MAX_TRIES:]


def span(seconds: float) -> int:
    """Return *seconds* in whole microseconds, never negative."""
    return max(0, round(seconds * _SECOND))


def copied(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return a copy that shares nothing with *metadata*; it goes through JSON, as a row does."""
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
