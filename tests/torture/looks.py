"""
How the judge looks at a store: with its own connection and its own SQL.

Owns the SQL of both stores that are tortured, so that a mistake of a store cannot hide itself.
Knows no rule: what must hold of what is seen here is said in `checker`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import apsw

if TYPE_CHECKING:
    from pathlib import Path

NAME = "redrive.db"
_LEASE_MASK = (1 << 43) - 1
_PATIENCE = 60  # seconds; a server that is gone refuses at once: only one that is slow is waited for


class Row(NamedTuple):
    """What the judge reads of a letter."""

    id: str
    status: str
    token: int
    attempts: int
    losses: int
    why: str | None
    held: int


class Counted(NamedTuple):
    """The books in one snapshot."""

    kept: dict[str, int]  # what the counters say
    counted: dict[str, int]  # what a recount says
    odd: int  # rows in flight that nobody holds, that wait for less than nothing, or that no index would find


class Lease(NamedTuple):
    """A claim, and until when it holds, by the clock that `now_ms` reads."""

    letter: str
    token: int
    until_ms: int


class Away(Exception):
    """The store cannot be looked at now: its server is down, or it has no tables yet."""


class Look(Protocol):
    """A connection of the judge's; use as a context."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def rows(self) -> dict[str, Row]: ...
    def books(self) -> Counted: ...
    def damage(self) -> list[str]: ...
    def now_ms(self) -> int: ...
    def leases(self) -> list[Lease]: ...
    def unfinished(self) -> int: ...
    def hanging(self) -> int: ...
    def workers(self) -> int: ...


def at(place: str | Path) -> Look:
    """Return a look at the file, or at the PostgreSQL schema behind the URL."""
    return PostgresLook(str(place)) if str(place).startswith("postgresql:") else SqliteLook(place)


def now_ms(url: str) -> int:
    """Return the time by which sweeps are noted: the boot clock for a file, the wall clock (whole ms) for a server."""
    return (time.time_ns() if url else time.clock_gettime_ns(time.CLOCK_BOOTTIME)) // 1_000_000


class SqliteLook:
    """Looks at a file, perhaps through a connection that is there already."""

    def __init__(self, place: str | Path | apsw.Connection) -> None:
        if isinstance(place, apsw.Connection):
            self.connection = place
            return
        self.connection = apsw.Connection(str(place), flags=apsw.SQLITE_OPEN_READWRITE)
        self.connection.set_busy_timeout(_PATIENCE * 1_000)
        self.connection.pragma("query_only", 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def rows(self) -> dict[str, Row]:
        sql = "SELECT id, status, token, attempts, losses, why, held FROM letters"
        return {row[0]: Row(*row) for row in self._ask(sql)}

    def books(self) -> Counted:
        with self.connection:  # one snapshot
            kept = dict(self._ask("SELECT status, sum(n) FROM tallies GROUP BY status"))
            counted = dict(self._ask("SELECT status, count(*) FROM letters GROUP BY status"))
            odd = (
                "SELECT count(*) FROM letters "
                "WHERE held < 0 OR (status = 'in_flight' AND token NOT IN (SELECT token FROM holders)) "
                "OR (status = 'failed') <> (dead IS 1) OR (status = 'archived') <> (archived_from IS NOT NULL)"
            )
            return Counted(kept, counted, self._ask(odd)[0][0])

    def damage(self) -> list[str]:
        found = [row[0] for row in self._ask("PRAGMA integrity_check")]
        return [] if found == ["ok"] else [f"integrity_check says {found[:5]}"]

    def now_ms(self) -> int:
        return now_ms("")

    def leases(self) -> list[Lease]:
        rows = self._ask("SELECT id, token, lease FROM letters WHERE status = 'in_flight'")
        return [Lease(letter, token, lease & _LEASE_MASK) for letter, token, lease in rows]

    def unfinished(self) -> int:
        return self._ask("SELECT count(*) FROM letters WHERE status IN ('pending', 'in_flight')")[0][0]

    def hanging(self) -> int:
        sql = "SELECT count(*) FROM letters WHERE kind = 'hang' AND status = 'in_flight' AND losses = 0"
        return self._ask(sql)[0][0]

    def workers(self) -> int:
        return self._ask("SELECT count(*) FROM workers")[0][0]

    def _ask(self, sql: str) -> list[Any]:
        try:
            return self.connection.execute(sql).fetchall()
        except (
            apsw.SQLError,
            apsw.BusyError,
            apsw.ProtocolError,
        ) as error:  # the schema is not there yet, or is being made
            raise Away from error


class PostgresLook:
    """Looks at the tables of a schema; connects again when the server was away."""

    def __init__(self, url: str, schema: str = "redrive") -> None:
        self._url, self._schema, self._connection = url.partition("?")[0], schema, None
        self._runner = asyncio.Runner()
        self._ended: dict[Any, int] = {}  # leases that were seen after their end, and when that was seen first

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._hang_up()
        self._runner.close()

    def rows(self) -> dict[str, Row]:
        sql = "SELECT id::text, status, token, attempts, losses, why, held FROM redrive.outbox"
        return {row[0]: Row(*row) for row in self._ask(sql)[0]}

    def books(self) -> Counted:
        kept, counted, [(odd,)] = self._ask(
            "SELECT status, sum(n)::bigint FROM (SELECT status, n FROM redrive.outbox_tallies "
            "UNION ALL SELECT status, n FROM redrive.outbox_deltas) AS t GROUP BY status",
            "SELECT status, count(*) FROM redrive.outbox GROUP BY status",
            "SELECT count(*) FROM redrive.outbox WHERE held < 0 OR (status = 'in_flight') <> (lease_until IS NOT NULL)",
        )
        return Counted(dict(map(tuple, kept)), dict(map(tuple, counted)), odd)

    def damage(self) -> list[str]:
        """Compare what the indexes find with what the table holds."""
        count = "SELECT count(*) FROM redrive.outbox WHERE status = '{}' {}"
        found = self._ask(
            "SET LOCAL enable_seqscan = off",
            *(count.format(status, more) for status, more in (("pending", "AND held = 0"), ("failed", ""))),
            "SET LOCAL enable_seqscan = on; SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off; "
            "SET LOCAL enable_indexonlyscan = off",
            *(count.format(status, more) for status, more in (("pending", "AND held = 0"), ("failed", ""))),
        )
        return [] if found[1:3] == found[4:6] else [f"the indexes find {found[1:3]}, the table holds {found[4:6]}"]

    def now_ms(self) -> int:
        return now_ms(self._url)

    def leases(self) -> list[Lease]:
        """Return claims; one whose end the clock of leases has passed ended, at the latest, when that is first seen."""
        over = "lease_until < (SELECT redrive.outbox_at(lease_us) FROM redrive.outbox_clock)"
        sql = f"SELECT id::text, token, lease_until, {over} FROM redrive.outbox WHERE status = 'in_flight'"  # noqa: S608
        found, now = self._ask(sql)[0], self.now_ms()
        ended = [tuple(row[:3]) for row in found if row[3]]
        self._ended = {lease: self._ended.get(lease, now) for lease in ended}
        return [Lease(*lease[:2], self._ended.get(lease, now + 1)) for lease in (tuple(row[:3]) for row in found)]

    def unfinished(self) -> int:
        return self._ask("SELECT count(*) FROM redrive.outbox WHERE status IN ('pending', 'in_flight')")[0][0][0]

    def hanging(self) -> int:
        where = "event_type = 'hang' AND status = 'in_flight' AND losses = 0"
        return self._ask(f"SELECT count(*) FROM redrive.outbox WHERE {where}")[0][0][0]  # noqa: S608 - our own words

    def workers(self) -> int:
        return self._ask("SELECT count(*) FROM redrive.outbox_workers")[0][0][0]

    def _ask(self, *statements: str) -> list[list[Any]]:
        """Return the rows of each statement, all of one snapshot."""
        import asyncpg  # noqa: PLC0415 - only where there is a driver

        try:
            return self._runner.run(self._fetch(statements))
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            self._hang_up()
            raise Away from error

    async def _fetch(self, statements: tuple[str, ...]) -> list[list[Any]]:
        import asyncpg  # noqa: PLC0415 - only where there is a driver

        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self._url, timeout=_PATIENCE, command_timeout=_PATIENCE)
        named = [sql.replace("redrive.", f'"{self._schema}".') for sql in statements]
        async with self._connection.transaction(isolation="repeatable_read", readonly=True):
            return [await self._run(sql) for sql in named]

    async def _run(self, sql: str) -> list[Any]:
        return await self._connection.execute(sql) if sql.startswith("SET") else await self._connection.fetch(sql)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
