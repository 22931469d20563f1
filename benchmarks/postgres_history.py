"""
What old letters cost: a database with very many failed and delivered ones.

Owns the prepared database and three questions asked of it: does draining slow down, do the
operator's looks stay quick, how fast is a bulk replay and what does it leave behind.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks import postgres_server as server
from benchmarks.fresh import ROOT, measure, new_folder
from benchmarks.letters import KIND, payload
from benchmarks.report import Ratio, Row, Table
from benchmarks.sqlite_history import ERRORS, GROUPS, KINDS, QUESTIONS
from redrive import Redrive
from redrive.core.letter import Category

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from benchmarks.report import Report


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much and how often."""

    failed: int
    delivered: int
    calls: int  # of each question


FULL = Sizes(failed=1_000_000, delivered=5_000_000, calls=5)
QUICK = Sizes(failed=20_000, delivered=100_000, calls=2)
_CONTENTS = 1  # raised when what is built changes
_MEASURED = "bench_old"
_SEARCHED = "error:~"  # no index serves these on PostgreSQL, and it says so


# ---------------------------------------------------------------------- the prepared database


def prepare(url: str, sizes: Sizes) -> str:
    """Return the name of a database with that history; it is built once and kept until the schema changes."""
    stamp = hashlib.sha256(b"%d" % _CONTENTS)
    for migration in sorted((ROOT / "src/redrive/stores/postgres/sql").glob("*/*.sql")):
        stamp.update(migration.read_bytes())
    prefix = f"{server.KEPT}_{sizes.failed}_{sizes.delivered}_"
    name = prefix + stamp.hexdigest()[:12]
    if not server.exists(url, name):
        for (outdated,) in server.rows(url, "SELECT datname FROM pg_database WHERE starts_with(datname, $1)", prefix):
            server.drop_database(url, outdated)
        built = server.new_database(url, "building")
        with new_folder() as folder:
            measure(build, folder, url=built, failed=sizes.failed, delivered=sizes.delivered)
        server.execute(url, f'ALTER DATABASE building RENAME TO "{name}"')
    return name


# Both kinds of old letters, as the store itself would have left them.
LETTERS = """
INSERT INTO redrive.outbox (
    seq, token, due_at, occurred_at, cycle_at, updated_at, id, attempts, status, queue, event_type, payload, why,
    category, error_type, last_error, fingerprint, applied_policy, first_failed_at, failed_at, tries)
SELECT nextval('redrive.outbox_seq'), i, at, at, at, at,
       (lpad(to_hex((date_part('epoch', at) * 1000)::bigint), 12, '0') || '7' || substr(md5(i::text), 1, 3) || '8'
        || substr(md5(i::text), 4, 15))::uuid,
       1, $1, 'default', ($3::text[])[i % cardinality($3::text[]) + 1], convert_to(replace($4, '#', i::text), 'UTF8'),
       CASE WHEN dead THEN 'gave up' ELSE 'succeeded' END,
       CASE WHEN dead THEN ($5::text[])[g % cardinality($5::text[]) + 1] END,
       CASE WHEN dead THEN ($6::text[])[g % cardinality($6::text[]) + 1] END,
       CASE WHEN dead THEN format('upstream-%s did not answer order %s within 30 seconds', g, i) END,
       CASE WHEN dead THEN lpad(to_hex(g), 16, '0') END, CASE WHEN dead THEN 'exponential' END,
       CASE WHEN dead THEN at END, CASE WHEN dead THEN at END,
       CASE WHEN dead THEN jsonb_build_array(jsonb_build_object('attempt', 1, 'at', date_part('epoch', at), 'why',
            'gave up', 'error', format('upstream-%s did not answer', g))) END
  FROM (SELECT i::bigint AS i, $1 = 'failed' AS dead, now() - ($2 - i) * interval '10 milliseconds' AS at,
               CASE WHEN i % 2 = 1 THEN i / 2 % $7::bigint ELSE 0 END AS g
          FROM generate_series(1, $2::bigint) AS i) AS numbers
"""
COUNTS = """
INSERT INTO redrive.outbox_tallies
SELECT queue, event_type, status, coalesce(category, ''), coalesce(applied_policy, ''), coalesce(error_type, ''),
       coalesce(fingerprint, ''), count(*) FROM redrive.outbox GROUP BY 1, 2, 3, 4, 5, 6, 7
UNION ALL
SELECT queue, event_type, 'enqueued', '', '', '', '', count(*) FROM redrive.outbox GROUP BY 1, 2;
INSERT INTO redrive.outbox_groups
SELECT fingerprint, min(error_type),
       min(format('upstream-%s did not answer order <n> within <n> seconds', fingerprint)),
       min(failed_at), max(failed_at) FROM redrive.outbox WHERE status = 'failed' GROUP BY fingerprint;
SELECT setval('redrive.outbox_token', (SELECT max(token) FROM redrive.outbox));
"""


def build(_folder: Path, url: str, failed: int, delivered: int) -> dict[str, Any]:
    """Fill a new database by SQL, and see that the store takes it for its own."""
    return asyncio.run(_build(url, failed, delivered))


async def _build(url: str, failed: int, delivered: int) -> dict[str, Any]:
    import asyncpg  # noqa: PLC0415 - only here

    async with Redrive(url):  # makes the schema
        pass
    connection = await asyncpg.connect(url)
    body = str(payload(0)).replace("'i': 0", "'i': #").replace("'", '"')
    traits = (list(KINDS), body, [str(category) for category in Category], list(ERRORS), GROUPS)
    await connection.execute(LETTERS, "failed", failed, *traits, timeout=3_600)
    await connection.execute(LETTERS, "delivered", delivered, *traits, timeout=3_600)
    await connection.execute(COUNTS, timeout=3_600)
    await connection.execute("VACUUM (ANALYZE, FREEZE)", timeout=3_600)
    await connection.close()
    async with Redrive(url) as app:
        stats = await app.desk.stats()
    assert stats.balanced, stats.books
    assert (stats.books["failed"], stats.books["delivered"]) == (failed, delivered), stats.books
    return {}


# ---------------------------------------------------------------------- do looks stay quick


def add_looks(report: Report, url: str, sizes: Sizes, old: str) -> None:
    """Ask what an operator asks."""
    with new_folder() as folder:
        found = measure(answers, folder, url=url, calls=sizes.calls)
    rows = [
        Row(name="redrive", setting=name, n=sizes.calls, runs=tuple(runs), ours=True) for name, runs in found.items()
    ]
    report.tables.append(Table(title=f"The operator's looks beside {old}", unit="ms", rows=rows))
    for verb in ("ls", "groups", "stats"):
        slowest = max(row.median for row in rows if row.setting.split()[0] == verb)
        report.ratios.append(Ratio(what=f"{verb}, the slowest", value=slowest, bar=200, at_least=False, unit="ms"))


def answers(_folder: Path, url: str, calls: int) -> dict[str, list[float]]:
    """Ask each question a few times, each time on a new connection."""
    looks = {name: query for name, query in QUESTIONS.items() if _SEARCHED not in query}
    questions: dict[str, Callable[[Redrive], Awaitable[Any]]] = {
        **{name: partial(_ls, query) for name, query in looks.items()},
        "groups": lambda app: app.desk.groups(),
        "groups by kind": lambda app: app.desk.groups(f"kind:{KIND}"),
        "stats": lambda app: app.desk.stats(),
    }
    return {name: [asyncio.run(_ask(url, ask)) for _ in range(calls)] for name, ask in questions.items()}


def _ls(query: str, app: Redrive) -> Awaitable[Any]:
    return app.desk.ls(query)


async def _ask(url: str, ask: Callable[[Redrive], Awaitable[Any]]) -> float:
    async with Redrive(url) as app:
        start = time.perf_counter()
        found = await ask(app)
        milliseconds = (time.perf_counter() - start) * 1_000
    assert found.letters if hasattr(found, "letters") else found
    return milliseconds


# ---------------------------------------------------------------------- bulk replay


def add_replay(report: Report, url: str, sizes: Sizes, table: Table) -> None:
    """Replay everything that failed, in a copy, and look at what it left."""
    before = _size(url)
    with new_folder() as folder:
        found = measure(replay, folder, url=url, failed=sizes.failed)
    after = _size(url)
    rate = sizes.failed / found["seconds"]
    table.rows.append(
        Row(name="redrive", setting="bulk replay by plan, no rate", n=sizes.failed, runs=(rate,), ours=True)
    )
    report.notes.append(
        f"Bulk replay of {sizes.failed:,} letters: the table and its indexes grew from {before / 1e6:,.0f} to "
        f"{after / 1e6:,.0f} MB ({after / before:.2f} ×); vacuum had removed {_dead(url)}."
    )


def _size(url: str) -> int:
    return int(server.value(url, "SELECT pg_total_relation_size('redrive.outbox')"))


def _dead(url: str) -> str:
    server.execute(url, "VACUUM redrive.outbox")
    free = server.value(url, "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'redrive.outbox'::regclass")
    return f"all but {free:,} dead rows afterwards, and their room is used again"


def replay(_folder: Path, url: str, failed: int) -> dict[str, Any]:
    """Replay every failed letter by one plan."""
    return asyncio.run(_replay(url, failed))


async def _replay(url: str, failed: int) -> dict[str, Any]:
    async with Redrive(url) as app:
        start = time.perf_counter()
        plan = await app.desk.start("replay", "status:failed", reason="benchmark")
        done = await app.desk.carry_out(plan.id)
        seconds = time.perf_counter() - start
        stats = await app.desk.stats()
    assert stats.balanced, stats.books
    assert (done.acted, done.skipped, stats.books["pending"]) == (failed, 0, failed), (done, stats.books)
    return {"seconds": seconds}
