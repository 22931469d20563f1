"""
Rows and letters: which columns make a Letter, and back.

Owns the order of columns. Knows no statement's purpose.
"""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

import apsw

from redrive.core.letter import JSON, Letter, Priority, Status, age_of
from redrive.core.why import Why
from redrive.stores.columns import priority_of, read_extras, read_history, read_tries, status_of
from redrive.stores.contract import Claim
from redrive.stores.sqlite.sql import statements

LARGE = 4_096  # a larger payload lives in `bodies`, so that a move does not rewrite it

# The leading fields of Letter, in their order.
HOT = (
    "id, queue, kind, payload, content_type, key, idempotency_key, priority, due_us, attempts, losses, policy, "
    "generation, origin, handler, tenant, cycles, cycle_us, created_us, updated_us, payload_version"
)
_WORKER = "(SELECT worker FROM holders WHERE holders.token = letters.token)"  # only a claim's token has a holder
COLD = (
    f"status, token, {_WORKER}, category, error_type, last_error, fingerprint, why, first_failed_us, failed_us, "
    "applied_policy, release, plan, iif(status = 'pending', held, 0), iif(queue_wide = 1, 'queue', 'kind')"
)
ALL = f"seq, {HOT}, {COLD}, extras, tries, failure_history"
LISTED = ALL.replace("kind, payload, ", "kind, x'' AS payload, ")  # for callers that do not look at payloads
_SQL = statements("rows", all=ALL)
_COLUMNS = Letter.__struct_fields__.index("headers")
_STATUS = 1 + len(HOT.split(", "))
_PAYLOAD, _PRIORITY = 4, 8

PRIORITIES = tuple(Priority)
_ENQUEUED = str(Why.ENQUEUED)  # as plain text: looking up a member takes time at every claim


def letter_of(connection: apsw.Connection, row: tuple[Any, ...]) -> Letter:
    """Build the whole letter from a row of ALL."""
    values = list(row[1 : 1 + _COLUMNS])
    values[_PAYLOAD - 1] = payload_of(connection, row)
    values[_PRIORITY - 1] = priority_of(row[_PRIORITY])
    values[_STATUS - 1] = status_of(row[_STATUS])
    extras, tries, history = row[1 + _COLUMNS :]
    found = read_extras(extras)
    told = (found.headers, found.metadata, found.after, found.after_failure)
    whole: list[Any] = [*values, *told, read_tries(tries), read_history(history)]
    return Letter(*whole)


def payload_of(connection: apsw.Connection, row: tuple[Any, ...]) -> bytes:
    """Return the payload of a row that begins with seq and HOT."""
    kept = row[_PAYLOAD]
    if kept is not None:
        return kept  # type: ignore[no-any-return]
    body = connection.execute(_SQL["body"], (row[0],)).fetchone()
    return b"" if body is None else body[0]


def the_row(connection: apsw.Connection, sql: str, bindings: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """Return the one row that must be there."""
    return connection.execute(sql, bindings).fetchone()  # type: ignore[return-value]


# What a claim reads of each letter; PLAIN says the rest; what other letters have beyond it is read afterwards.
LEAN = "seq, kind, due_us, id, payload, key, idempotency_key, priority, created_us"
PLAIN = (
    "attempts + losses + cycles = 0 AND payload_version = 1 AND content_type = 'application/json' "
    "AND cycle_us = created_us AND payload IS NOT NULL "
    "AND coalesce(policy, generation, origin, handler, tenant, extras, queue_wide) IS NULL AND why = 'enqueued'"
)


class Taken(NamedTuple):
    """What one claim took: rows of LEAN and PLAIN, and the whole rows of those that are not plain."""

    queue: str
    rows: list[tuple[Any, ...]]
    rich: dict[int, Letter]  # by seq, those that a row of LEAN does not hold whole
    token: int
    worker: str
    now_us: int


def rich_of(connection: apsw.Connection, rows: list[tuple[Any, ...]]) -> dict[int, Letter]:
    """Return those of the claimed *rows* with a past, a large payload or extras, as they stand now."""
    seqs = array("q", [row[0] for row in rows if not row[-1]])
    if not seqs:
        return {}
    found: list[tuple[Any, ...]] = connection.execute(_SQL["whole"], (apsw.carray(seqs),)).fetchall()
    return {row[0]: letter_of(connection, row) for row in found}


def claims_of(taken: Taken) -> list[Claim]:
    """Build the claims; needs no connection, so that the writer need not wait for it."""
    queue, rows, rich, token, worker, now_us = taken
    status = Status.IN_FLIGHT
    claims = []
    # Names and a plain call: with slices and stars this loop takes twice as long.
    for seq, kind, due, id_, payload, key, idempotency_key, priority, created, plain in rows:
        if plain:
            letter = Letter(
                id_, queue, kind, payload, JSON, key, idempotency_key, PRIORITIES[priority], due, 1,
                0, None, None, None, None, None, 0, created, created, now_us, 1,
                status, token, worker, None, None, None, None, _ENQUEUED,
            )  # fmt: skip
        else:
            letter = rich[seq]
        claims.append(Claim(letter, seq, age_of(letter, now_us)))
    return claims
