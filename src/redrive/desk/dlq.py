"""
The dead-letter queue of an outbox, in the outbox's own words.

Owns the names `list_dlq_events`, `get_dlq_event_detail` and `replay_dlq_event`, and which of a
letter's fields each key stands for: an event is a letter, its type the kind, its source the origin,
its target the handler, its workspace the tenant. Adds no rule: each is one call of the desk's verbs.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from redrive.core.query import Query, parse
from redrive.desk.act.acts import act
from redrive.desk.look import inspect, views
from redrive.desk.look.views import CycleView, TryView

if TYPE_CHECKING:
    from redrive.core.letter import Letter
    from redrive.desk.act.acts import Done
    from redrive.stores.contract import Store


class DlqEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter as one line, without its payload."""

    event_id: str
    event_type: str
    occurred_at: datetime
    source: str | None
    target: str | None
    generation: int | None
    workspace_id: str | None
    idempotency_key: str | None
    status: str
    attempts: int
    last_error: str | None
    first_failed_at: datetime | None
    failed_at: datetime | None
    queue: str
    category: str | None
    error_type: str | None
    group: str | None


class DlqEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Some dead letters, newest first, and where the next page starts (null at the end)."""

    events: list[DlqEvent]
    cursor: str | None


class DlqEventDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One letter with its payload, its tries and its ended cycles."""

    event: DlqEvent
    payload: msgspec.Raw | str  # as it is if it is JSON, else base64
    payload_encoding: str  # json or base64
    tries: list[TryView]
    failure_history: list[CycleView]


async def list_dlq_events(
    store: Store, query_text: str = "", *, cursor: str | None = None, limit: int = 50
) -> DlqEvents:
    """Return a page of dead letters, newest first: those that match, or all of them."""
    wanted = Query((*parse("status:failed").terms, *parse(query_text).terms))
    page = await store.find(wanted, cursor=cursor, limit=limit, payloads=False)
    return DlqEvents(events=[_event(letter) for letter in page.letters], cursor=page.cursor)


async def get_dlq_event_detail(store: Store, event_id: str) -> DlqEventDetail:
    """Return all of one letter, in any status; raise LetterNotFound."""
    letter = await inspect.show(store, event_id)
    sheet = views.sheet(letter)
    return DlqEventDetail(
        event=_event(letter),
        payload=sheet.payload,
        payload_encoding=sheet.payload_encoding,
        tries=sheet.tries,
        failure_history=sheet.failure_history,
    )


async def replay_dlq_event(
    store: Store, event_id: str, new_generation: int | None = None, replayed_by: str = "", reason: str = ""
) -> Done:
    """
    Give one dead letter another cycle, at once, and write that into the audit log.

    The ended cycle goes to `failure_history`; id and idempotency key stay. *new_generation* stamps it for
    workers of that generation, None leaves it as it is. Raise LetterNotFound, or MoveRefused if it is not failed.
    """
    return await act(store, "replay", (event_id,), by=replayed_by, reason=reason, generation=new_generation)


def _event(letter: Letter) -> DlqEvent:
    return DlqEvent(
        event_id=letter.id,
        event_type=letter.kind,
        occurred_at=letter.created_at,
        source=letter.origin,
        target=letter.handler,
        generation=letter.generation,
        workspace_id=letter.tenant,
        idempotency_key=letter.idempotency_key,
        status=str(letter.status),
        attempts=letter.attempts,
        last_error=letter.last_error,
        first_failed_at=letter.first_failed_at,
        failed_at=letter.failed_at,
        queue=letter.queue,
        category=letter.category,
        error_type=letter.error_type,
        group=letter.fingerprint,
    )
