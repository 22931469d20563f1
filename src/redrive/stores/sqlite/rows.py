"""
Rows and letters: which columns make a Letter, and back.

Owns the order of columns. Knows no statement's purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from redrive.core.letter import Letter, Priority, Status
from redrive.stores.columns import read_extras, read_history, read_tries
from redrive.stores.contract import Claim

if TYPE_CHECKING:
    import apsw

LARGE = 4_096  # a larger payload lives in `bodies`, so that a move does not rewrite it

# What a claim reads: the leading fields of Letter, in their order.
HOT = (
    "id, queue, kind, payload, content_type, key, idempotency_key, priority, due_us, attempts, losses, policy, "
    "generation, origin, handler, tenant, cycles, cycle_us, created_us, updated_us, payload_version"
)
COLD = (
    "status, token, worker, category, error_type, last_error, fingerprint, why, first_failed_us, failed_us, "
    "applied_policy, release, held"
)
ALL = f"seq, {HOT}, {COLD}, extras, tries, failure_history"
_COLUMNS = len(HOT.split(", ")) + len(COLD.split(", "))
_STATUS = 1 + len(HOT.split(", "))
_PAYLOAD, _PRIORITY, _ATTEMPTS, _CYCLES, _EXTRAS = 4, 8, 10, 17, 22

PRIORITIES = tuple(Priority)


def letter_of(connection: apsw.Connection, row: tuple[Any, ...]) -> Letter:
    """Build the whole letter from a row of ALL."""
    values = list(row[1 : 1 + _COLUMNS])
    values[_PAYLOAD - 1] = payload_of(connection, row)
    values[_PRIORITY - 1] = PRIORITIES[row[_PRIORITY]]
    values[_STATUS - 1] = Status(row[_STATUS])
    extras, tries, history = row[1 + _COLUMNS :]
    found = read_extras(extras)
    whole: list[Any] = [*values, found.headers, found.metadata, found.after, read_tries(tries), read_history(history)]
    return Letter(*whole)


def payload_of(connection: apsw.Connection, row: tuple[Any, ...]) -> bytes:
    """Return the payload of a row that begins with seq and HOT."""
    kept = row[_PAYLOAD]
    if kept is not None:
        return kept  # type: ignore[no-any-return]
    return the_row(connection, "SELECT body FROM bodies WHERE seq = ?", (row[0],))[0]  # type: ignore[no-any-return]


def the_row(connection: apsw.Connection, sql: str, bindings: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """Return the one row that must be there."""
    return connection.execute(sql, bindings).fetchone()  # type: ignore[return-value]


class Taken(NamedTuple):
    """What one claim took: rows of seq, HOT and extras whose attempts are already counted."""

    rows: list[tuple[Any, ...]]
    rich: dict[int, Letter]  # by place, those that a row of HOT does not hold whole
    token: int
    worker: str
    now_us: int


def taken_of(connection: apsw.Connection, rows: list[tuple[Any, ...]], token: int, worker: str, now_us: int) -> Taken:
    """Read the rest of what was taken, in its own transaction."""
    rich = {row[0]: _rich(connection, row, token, worker) for row in rows if _is_rich(row)}
    return Taken(rows, rich, token, worker, now_us)


def _is_rich(row: tuple[Any, ...]) -> bool:
    """Whether a letter has a past, a large payload or extras."""
    return row[_PAYLOAD] is None or row[_EXTRAS] is not None or row[_ATTEMPTS] > 1 or row[_CYCLES]


def claims_of(taken: Taken) -> list[Claim]:
    """Build the claims; needs no connection, so that the writer need not wait for it."""
    status, rich, token, worker, now_us = Status.IN_FLIGHT, taken.rich, taken.token, taken.worker, taken.now_us
    claims = []
    for row in taken.rows:
        # Names and a plain call: with slices and stars this loop takes twice as long (0.8 µs a letter).
        (
            seq, id_, queue, kind, payload, content_type, key, idempotency_key, priority, due, attempts, losses, policy,
            generation, origin, handler, tenant, cycles, cycle_us, created, updated, version, _,
        ) = row  # fmt: skip
        if rich and seq in rich:
            letter = rich[seq]
        else:
            letter = Letter(
                id_, queue, kind, payload, content_type, key, idempotency_key, PRIORITIES[priority], due, attempts,
                losses, policy, generation, origin, handler, tenant, cycles, cycle_us, created, updated, version,
                status, token, worker,
            )  # fmt: skip
        claims.append(Claim(letter, seq, (now_us - cycle_us) / 1e6))
    return claims


def _rich(connection: apsw.Connection, row: tuple[Any, ...], token: int, worker: str) -> Letter:
    """Build such a letter whole."""
    whole = the_row(connection, f"SELECT {ALL} FROM letters WHERE seq = ?", (row[0],))  # noqa: S608 - our own names
    letter = letter_of(connection, whole)
    return msgspec.structs.replace(
        letter, attempts=row[10], updated_us=row[20], status=Status.IN_FLIGHT, token=token, worker=worker
    )
