"""
Rows and letters: which columns make a Letter, and back.

Owns the order of columns. Knows no statement's purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from redrive.core.letter import FailureCycle, Letter, Priority, Status, Try
from redrive.stores.columns import read_extras, read_history, read_tries
from redrive.stores.contract import Claim
from redrive.stores.postgres.texts import unescape, unescape_all

if TYPE_CHECKING:
    from collections.abc import Iterable

# What every read returns: the place, the fields of Letter in their order up to waits_for, then what needs decoding.
LETTER = """
seq, id::text AS id, queue, event_type, payload, content_type, key, idempotency_key, priority,
{schema}.outbox_us(due_at), attempts, losses, policy, generation, source, target, workspace_id, cycles,
{schema}.outbox_us(cycle_at), {schema}.outbox_us(occurred_at), {schema}.outbox_us(updated_at), payload_version,
status, token, worker, category, error_type, last_error, fingerprint, why, {schema}.outbox_us(first_failed_at),
{schema}.outbox_us(failed_at), applied_policy, release, held, odd, extras, tries::text, failure_history::text
"""
_PRIORITY, _STATUS, _ODD = 8, 22, 35
_PAST = 24  # what a claim returns instead: after payload_version the token, whether it is rich, and from here its past

PRIORITIES = tuple(Priority)
_TEXTS = (
    "queue", "kind", "content_type", "key", "idempotency_key", "policy", "origin", "handler", "tenant", "worker",
    "category", "error_type", "last_error", "fingerprint", "why", "applied_policy", "release",
)  # fmt: skip


def without_payload(columns: str) -> str:
    """Return the same columns for letters whose payload nobody will look at."""
    return columns.replace(" payload,", " ''::bytea AS payload,")


def letter_of(row: Any) -> Letter:
    """Build the whole letter from a row of LETTER."""
    values = list(row[1:_ODD])
    values[_PRIORITY - 1] = PRIORITIES[row[_PRIORITY]]
    values[_STATUS - 1] = Status(row[_STATUS])
    return _whole(values, row[_ODD:])


def _whole(values: list[Any], rest: tuple[Any, ...]) -> Letter:
    odd, extras, tries, history = rest
    found = read_extras(extras)
    logs: tuple[Any, Any] = (
        (_odd_log(tries, tuple[Try, ...]), _odd_log(history, tuple[FailureCycle, ...]))
        if odd
        else (read_tries(tries), read_history(history))
    )
    whole: tuple[Any, ...] = (*values, found.headers, found.metadata, found.after, *logs)
    letter = Letter(*whole)
    return _restored(letter) if odd else letter


def _odd_log(text: str | None, kind: Any) -> Any:
    """Decode a log with escapes in it; one that somebody else spoilt must not stop the letter."""
    try:
        return msgspec.convert(unescape_all(msgspec.json.decode(text)), kind) if text else ()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ()


def _restored(letter: Letter) -> Letter:
    """Give back the text that was escaped."""
    texts = {name: getattr(letter, name) for name in _TEXTS}
    return msgspec.structs.replace(letter, **{name: unescape(text) for name, text in texts.items() if text is not None})


def claims_of(rows: Iterable[Any], worker: str) -> list[Claim]:
    """Build the claims of rows that a claim returned; most of them are plain."""
    flying, priorities = Status.IN_FLIGHT, PRIORITIES
    claims = []
    for row in rows:
        # One slice and one unpacking: half the time of picking from the driver's record.
        (
            ref, letter_id, queue, kind, payload, content_type, key, idempotency_key, priority, due, attempts, losses,
            policy, generation, origin, handler, tenant, cycles, cycle, created, updated, version, token, rich,
        ) = row[:_PAST]  # fmt: skip
        cycle = created if cycle is None else cycle
        letter = Letter(
            letter_id, queue, kind, payload, content_type, key, idempotency_key, priorities[priority],
            created if due is None else due, attempts, losses, policy, generation, origin, handler, tenant, cycles,
            cycle, created, updated, version, flying, token, worker,
        )  # fmt: skip
        claims.append(Claim(_with_past(letter, row) if rich else letter, ref, (updated - cycle) / 1e6))
    return claims


def _with_past(letter: Letter, row: Any) -> Letter:
    """Return a letter that has a past, or extras."""
    values = [getattr(letter, field) for field in Letter.__struct_fields__[:_PAST]]
    whole = _whole([*values, *row[_PAST:34]], row[34:])
    return msgspec.structs.replace(whole, worker=letter.worker) if row[34] else whole
