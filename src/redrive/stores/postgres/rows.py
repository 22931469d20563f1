"""
Rows and letters: which columns make a Letter, and back.

Owns the order of columns. Knows no statement's purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from redrive.core.letter import FailureCycle, Letter, Priority, Status, Try, age_of
from redrive.core.why import Why
from redrive.stores.columns import UNREADABLE, priority_of, read_extras, read_history, read_tries, status_of
from redrive.stores.contract import Claim
from redrive.stores.postgres.texts import NONE, Whole, unescape, unescape_all

if TYPE_CHECKING:
    from collections.abc import Iterable

# What every read returns: the seq, the fields of Letter in their order up to unique_in, then what needs decoding.
LETTER = """
seq, id::text AS id, queue, event_type, payload, content_type, key, idempotency_key, priority,
{schema}.outbox_us(due_at), attempts, losses, policy, generation, source, target, workspace_id, cycles,
{schema}.outbox_us(cycle_at), {schema}.outbox_us(occurred_at), {schema}.outbox_us(updated_at), payload_version,
status, token, worker, category, error_type, last_error, fingerprint, why, {schema}.outbox_us(first_failed_at),
{schema}.outbox_us(failed_at), applied_policy, release, plan, CASE WHEN status = 'pending' THEN held ELSE 0 END,
CASE WHEN queue_wide THEN 'queue' ELSE 'kind' END, odd, extras, tries::text, failure_history::text
"""
_PRIORITY, _STATUS, _ODD = 8, 22, 37
_PAST = 24  # what a claim returns instead: after payload_version the token, whether it is rich, and from here its past

PRIORITIES = tuple(Priority)
_ENQUEUED = str(Why.ENQUEUED)  # as plain text: looking up a member takes time at every claim
TEXTS = (
    "queue", "kind", "content_type", "key", "idempotency_key", "policy", "origin", "handler", "tenant", "worker",
    "category", "error_type", "last_error", "fingerprint", "why", "applied_policy", "release", "plan",
)  # fmt: skip


def without_payload(columns: str) -> str:
    """Return the same columns for letters whose payload is not needed."""
    return columns.replace(" payload,", " ''::bytea AS payload,")


def letter_of(row: Any, names: Whole = NONE) -> Letter:
    """Build the whole letter from a row of LETTER; *names* are what long names stand for."""
    values = list(row[1:_ODD])
    values[_PRIORITY - 1] = priority_of(row[_PRIORITY])
    values[_STATUS - 1] = status_of(row[_STATUS])
    return _whole(values, row[_ODD:], names)


def _whole(values: list[Any], rest: tuple[Any, ...], names: Whole) -> Letter:
    odd, extras, tries, history = rest
    found = read_extras(extras)
    logs: tuple[Any, Any] = (
        (_odd_log(tries, tuple[Try, ...], names), _odd_log(history, tuple[FailureCycle, ...], names))
        if odd
        else (read_tries(tries), read_history(history))
    )
    whole: tuple[Any, ...] = (*values, found.headers, found.metadata, found.after, found.after_failure, *logs)
    letter = Letter(*whole)
    return _restored(letter, names) if odd else letter


def _odd_log(text: str | None, kind: Any, names: Whole) -> Any:
    """Decode a log with escapes in it; one that another program has damaged must not stop the letter."""
    try:
        return msgspec.convert(unescape_all(msgspec.json.decode(text), names), kind) if text else ()
    except UNREADABLE:
        return ()


def _restored(letter: Letter, names: Whole) -> Letter:
    """Give back the text that was escaped."""
    texts = {field: getattr(letter, field) for field in TEXTS}
    told = {field: unescape(text, names) for field, text in texts.items() if text is not None}
    return msgspec.structs.replace(letter, **told)


def rich(rows: Iterable[Any]) -> list[Any]:
    """Return those rows of a claim that have more than a plain letter has; long names are among these only."""
    return [row for row in rows if row[_PAST - 1]]


def claims_of(rows: Iterable[Any], worker: str, names: Whole = NONE) -> list[Claim]:
    """Build the claims of rows that a claim returned; most of them are plain."""
    flying, priorities = Status.IN_FLIGHT, PRIORITIES
    claims = []
    for row in rows:
        # One slice and one unpacking: half the time of picking from the driver's record.
        (
            ref, letter_id, queue, kind, payload, content_type, key, idempotency_key, priority, due, attempts, losses,
            policy, generation, origin, handler, tenant, cycles, cycle, created, updated, version, token, is_rich,
        ) = row[:_PAST]  # fmt: skip
        cycle = created if cycle is None else cycle
        letter = Letter(
            letter_id, queue, kind, payload, content_type, key, idempotency_key, priorities[priority],
            created if due is None else due, attempts, losses, policy, generation, origin, handler, tenant, cycles,
            cycle, created, updated, version, flying, token, worker, None, None, None, None, _ENQUEUED,
        )  # fmt: skip
        claims.append(Claim(_with_past(letter, row, names) if is_rich else letter, ref, age_of(letter, updated)))
    return claims


def _with_past(letter: Letter, row: Any, names: Whole) -> Letter:
    """Return a letter that has a past, or extras."""
    values = [getattr(letter, field) for field in Letter.__struct_fields__[:_PAST]]
    odd = _ODD - 1  # a claim returns no status and no worker, and says whether a row is rich
    whole = _whole([*values, *row[_PAST:odd]], row[odd:], names)
    return msgspec.structs.replace(whole, worker=letter.worker) if row[odd] else whole
