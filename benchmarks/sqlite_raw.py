"""
Loops written by hand on the driver that redrive uses: the limit without pipelining.

Owns two of them: one on a bare table of eight columns, and one on redrive's own table that
makes the same durable writes as its worker. Both claim a batch, commit, decode it, acknowledge
it, commit; neither has handlers, leases to renew, facts or anybody else beside it.
"""
# ruff: noqa: PLC0415 - the driver is imported only in the process that measures it

from __future__ import annotations

import time
import uuid
from array import array
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.letters import KIND, Marks, each, in_batches, payloads
from benchmarks.sqlite_peers import Phase, answer

if TYPE_CHECKING:
    from pathlib import Path

# ---------------------------------------------------------------------- a bare table

_SCHEMA = """
CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, queue TEXT NOT NULL, status TEXT NOT NULL, payload BLOB NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL, lease REAL
) STRICT;
CREATE INDEX jobs_due ON jobs (queue, due, seq) WHERE status = 'pending';
CREATE INDEX jobs_lease ON jobs (lease) WHERE status = 'in_flight';
"""
_PUT = "INSERT INTO jobs (id, queue, status, payload, due) VALUES (?, 'default', 'pending', ?, ?)"
_CLAIM = """
UPDATE jobs SET status = 'in_flight', attempts = attempts + 1, lease = ? WHERE seq IN (
    SELECT seq FROM jobs WHERE queue = 'default' AND status = 'pending' AND due <= ? ORDER BY due, seq LIMIT ?)
RETURNING seq, payload, attempts
"""
_ACK = "UPDATE jobs SET status = 'delivered', lease = NULL WHERE seq = ? AND attempts = ?"


def raw_apsw(folder: Path, n: int, cut: float | None, batch: int, *, together: bool = False) -> dict[str, Any]:
    """A loop on the same driver with the same durable writes; *together* acknowledges and claims in one commit."""
    import apsw

    connection = apsw.Connection(str(folder / "raw.db"))
    connection.execute("PRAGMA journal_mode = wal; PRAGMA synchronous = full")
    connection.execute(_SCHEMA)
    put = _raw_put(connection, n, batch, cut)
    got = _raw_get(connection, put[0], batch, cut, together=together)
    return answer(put, got, int(connection.pragma("synchronous")), apsw.sqlite_lib_version())


def _raw_put(connection: Any, n: int, batch: int, cut: float | None) -> Phase:
    def put(bodies: list[dict[str, Any]]) -> None:
        now = time.time()
        rows = [(str(uuid.uuid4()), msgspec.json.encode(body), now) for body in bodies]
        with _transaction(connection):
            connection.executemany(_PUT, rows)

    done, seconds = each(put, in_batches(payloads(n), batch), cut)
    return min(n, done * batch), seconds


def _raw_get(connection: Any, n: int, batch: int, cut: float | None, *, together: bool) -> Phase:
    marks = Marks(n)
    start = time.perf_counter()
    end, handled = start + (cut or 1e9), 0
    rows: list[Any] = []
    while time.perf_counter() < end:
        rows = _raw_round(connection, rows, batch, together=together)
        if not rows:
            break
        for row in rows:
            marks.counts[msgspec.json.decode(row[1])["i"]] += 1
        handled += len(rows)
    _raw_acknowledge(connection, rows)
    seconds = time.perf_counter() - start
    marks.check(n if not rows else handled)
    return handled, seconds


def _raw_round(connection: Any, done: list[Any], batch: int, *, together: bool) -> list[Any]:
    """Acknowledge what is done and claim the next."""
    if not together:
        _raw_acknowledge(connection, done)
        done = []
    now = time.time()
    with _transaction(connection):
        if done:
            connection.executemany(_ACK, [(row[0], row[2]) for row in done])
        return list(connection.execute(_CLAIM, (now + 30, now, batch)))


def _raw_acknowledge(connection: Any, rows: list[Any]) -> None:
    if rows:
        with _transaction(connection):
            connection.executemany(_ACK, [(row[0], row[2]) for row in rows])


class _transaction:  # noqa: N801 - reads as a statement
    """`BEGIN IMMEDIATE … COMMIT`; a savepoint, which apsw's own `with` makes, would start out as a reader."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, *_: object) -> None:
        self._connection.execute("COMMIT")


# ---------------------------------------------------------------------- redrive's own table

_SELECT = """
SELECT seq, payload FROM letters
 WHERE status = 'pending' AND held = 0 AND queue = 'default' AND kind = ? AND priority = 1 AND due_us <= ?
 ORDER BY due_us, seq LIMIT ?
"""
_TAKE = """
UPDATE letters SET status = 'in_flight', attempts = attempts + 1, token = ?, lease = ?, updated_us = ?
 WHERE seq IN carray(?)
"""
_DELIVER = """
UPDATE letters SET status = 'delivered', token = ?, updated_us = ?, why = 'succeeded'
 WHERE seq IN carray(?) AND token = ? AND status = 'in_flight'
"""
_COUNT = """
INSERT INTO tallies VALUES ('default', ?, ?, '', '', '', '', ?) ON CONFLICT DO UPDATE SET n = n + excluded.n
"""
_NUMBER = "UPDATE meta SET token = ?"
_WORKER = "a-worker-of-a-host-4711-0a1b2c3d"


def same_writes(folder: Path, n: int, batch: int) -> dict[str, Any]:
    """Drain the letters that `sqlite_redrive.fill` put, with the writes that redrive's worker makes."""
    import apsw

    connection = apsw.Connection(str(folder / "redrive.db"))
    connection.execute("PRAGMA synchronous = full")
    marks, token = Marks(n), 1 << 40
    start = time.perf_counter()
    while rows := _same_claim(connection, batch, token):
        for row in rows:
            marks.counts[msgspec.json.decode(row[1])["i"]] += 1
        _same_deliver(connection, rows, token)
        token += 2
    seconds = time.perf_counter() - start
    marks.check(n)
    level = int(connection.pragma("synchronous"))
    return {"n": n, "seconds": seconds, "synchronous": {1: "NORMAL", 2: "FULL"}[level]}


def _same_claim(connection: Any, batch: int, token: int) -> list[Any]:
    import apsw

    now = time.time_ns() // 1_000
    with _transaction(connection):
        rows = list(connection.execute(_SELECT, (KIND, now, batch)))
        places = apsw.carray(array("q", [row[0] for row in rows] or [0]))
        connection.execute("INSERT INTO holders VALUES (?, ?)", (token, _WORKER))
        connection.execute(_TAKE, (token, 1 << 42, now, places))
        _same_counts(connection, ("pending", -len(rows)), ("in_flight", len(rows)), token)
    return rows


def _same_deliver(connection: Any, rows: list[Any], token: int) -> None:
    import apsw

    places = apsw.carray(array("q", [row[0] for row in rows]))
    with _transaction(connection):
        connection.execute(_DELIVER, (token + 1, time.time_ns() // 1_000, places, token))
        assert connection.changes() == len(rows)
        _same_counts(connection, ("in_flight", -len(rows)), ("delivered", len(rows)), token + 1)


def _same_counts(connection: Any, before: tuple[str, int], after: tuple[str, int], token: int) -> None:
    connection.executemany(_COUNT, [(KIND, *before), (KIND, *after)])
    connection.execute(_NUMBER, (token,))
