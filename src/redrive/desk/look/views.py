"""
What operators see of a letter, as data.

Owns the documented JSON shapes of letters: keys are stable and only ever added, instants are
ISO 8601 in UTC, and the payload appears in `LetterSheet` alone. Knows no store and no terminal.
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from redrive.core.letter.media import is_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redrive.core.letter import FailureCycle, Letter, Try
    from redrive.stores.contract import Page


class LetterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A letter as one line of a list."""

    id: str
    queue: str
    kind: str
    status: str
    priority: str
    attempts: int
    losses: int
    cycles: int
    category: str | None
    error_type: str | None
    last_error: str | None
    group: str | None
    why: str | None
    key: str | None
    idempotency_key: str | None
    due_at: datetime
    first_failed_at: datetime | None
    failed_at: datetime | None
    created_at: datetime
    updated_at: datetime


class TryView(msgspec.Struct, frozen=True, kw_only=True):
    """One try of a cycle."""

    attempt: int
    at: datetime
    why: str
    error_type: str
    error: str
    category: str
    rule: str
    delay: float
    draw: float
    policy: str
    age: float  # seconds that the cycle had lasted
    retry_after: float | None  # seconds that the error asked for
    place: str  # module:function:line in the user's code


class CycleView(msgspec.Struct, frozen=True, kw_only=True):
    """One run that ended in failure and was replayed."""

    attempts: int
    losses: int
    error_type: str
    last_error: str
    category: str
    group: str
    why: str
    first_failed_at: datetime | None
    failed_at: datetime | None
    replayed_at: datetime | None
    replayed_by: str
    reason: str
    plan: str
    release: str | None
    generation: int | None
    tries: list[TryView]
    traceback: str  # of the newest try that has one


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """One header; *value* is text if its bytes are UTF-8, else base64."""

    name: str
    value: str
    encoding: str  # utf-8 or base64


class LetterSheet(msgspec.Struct, frozen=True, kw_only=True):
    """Everything kept of a letter, its payload included."""

    letter: LetterRow
    payload: msgspec.Raw | str  # as it is if it is JSON, else base64
    payload_encoding: str  # json or base64
    payload_version: int
    content_type: str
    headers: list[Header]
    metadata: dict[str, Any]
    after: list[str]
    after_failure: str
    waits_for: int
    worker: str | None
    policy: str | None
    applied_policy: str | None
    generation: int | None
    origin: str | None
    handler: str | None
    tenant: str | None
    release: str | None
    plan: str | None  # by which an operator acted on it last; null if that was by id
    tries: list[TryView]
    place: str  # where the newest failure of this cycle was: module:function:line in the user's code
    traceback: str  # the newest of this cycle
    failure_history: list[CycleView]


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Some letters, and where the next page starts (null at the end)."""

    letters: list[LetterRow]
    cursor: str | None


def listing(page: Page) -> Listing:
    """Return *page* as operators see it."""
    return Listing(letters=[row(letter) for letter in page.letters], cursor=page.cursor)


def row(letter: Letter) -> LetterRow:
    """Return *letter* as one line, without its payload."""
    return LetterRow(
        id=letter.id,
        queue=letter.queue,
        kind=letter.kind,
        status=str(letter.status),
        priority=letter.priority.name.lower(),
        attempts=letter.attempts,
        losses=letter.losses,
        cycles=letter.cycles,
        category=letter.category,
        error_type=letter.error_type,
        last_error=letter.last_error,
        group=letter.fingerprint,
        why=letter.why,
        key=letter.key,
        idempotency_key=letter.idempotency_key,
        due_at=letter.due_at,
        first_failed_at=letter.first_failed_at,
        failed_at=letter.failed_at,
        created_at=letter.created_at,
        updated_at=letter.updated_at,
    )


def sheet(letter: Letter) -> LetterSheet:
    """Return everything kept of *letter*."""
    payload, encoding = shown_payload(letter.payload, letter.content_type)
    return LetterSheet(
        letter=row(letter),
        payload=payload,
        payload_encoding=encoding,
        payload_version=letter.payload_version,
        content_type=letter.content_type,
        headers=[_header(name, value) for name, value in letter.headers],
        metadata=letter.metadata,
        after=list(letter.after),
        after_failure=letter.after_failure,
        waits_for=letter.waits_for,
        worker=letter.worker,
        policy=letter.policy,
        applied_policy=letter.applied_policy,
        generation=letter.generation,
        origin=letter.origin,
        handler=letter.handler,
        tenant=letter.tenant,
        release=letter.release,
        plan=letter.plan,
        tries=_tries(letter.tries),
        place=place_of(letter.tries),
        traceback=traceback_of(letter.tries),
        failure_history=[_cycle(cycle) for cycle in letter.failure_history],
    )


def shown_payload(payload: bytes, content_type: str) -> tuple[msgspec.Raw | str, str]:
    """Return *payload* and how it is shown: JSON keeps its big numbers, key order and repeated keys."""
    text = pretty_json(payload, indent=-1) if is_json(content_type) else None
    if text is None:
        return base64.b64encode(payload).decode("ascii"), "base64"
    return msgspec.Raw(text), "json"


def pretty_json(payload: bytes, *, indent: int = 2) -> bytes | None:
    """Return *payload* laid out with *indent* (-1: no spaces), or None if it is not JSON that can be shown."""
    try:
        text = msgspec.json.format(payload, indent=indent)
        text.decode("utf-8")  # the formatter copies strings as they are
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return text


def place_of(tries: Sequence[Try]) -> str:
    """Return where the newest of these tries failed, as "module:function:line"; nothing if that is not known."""
    return tries[-1].place if tries else ""


def traceback_of(tries: Sequence[Try]) -> str:
    """Return the newest traceback that is kept of these tries."""
    return next((one.traceback for one in reversed(tries) if one.traceback), "")


def _header(name: str, value: bytes) -> Header:
    try:
        return Header(name=name, value=value.decode("utf-8"), encoding="utf-8")
    except UnicodeDecodeError:
        return Header(name=name, value=base64.b64encode(value).decode("ascii"), encoding="base64")


def _tries(tries: Iterable[Try]) -> list[TryView]:
    return [
        TryView(
            attempt=one.attempt,
            at=one.at,
            why=one.why,
            error_type=one.error_type,
            error=one.error,
            category=one.category,
            rule=one.rule,
            delay=one.delay,
            draw=one.draw,
            policy=one.policy,
            age=one.age,
            retry_after=one.retry_after,
            place=one.place,
        )
        for one in tries
    ]


def _cycle(cycle: FailureCycle) -> CycleView:
    return CycleView(
        attempts=cycle.attempts,
        losses=cycle.losses,
        error_type=cycle.error_type,
        last_error=cycle.last_error,
        category=cycle.category,
        group=cycle.fingerprint,
        why=cycle.why,
        first_failed_at=cycle.first_failed_at,
        failed_at=cycle.failed_at,
        replayed_at=cycle.replayed_at,
        replayed_by=cycle.replayed_by,
        reason=cycle.reason,
        plan=cycle.plan,
        release=cycle.release,
        generation=cycle.generation,
        tries=_tries(cycle.tries),
        traceback=traceback_of(cycle.tries),
    )
