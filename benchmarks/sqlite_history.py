"""
What old letters cost: a file with very many failed and delivered ones.

Owns the prepared file and four questions asked of it: does draining slow down, do the
operator's looks stay quick, how fast is a bulk replay, does memory stay flat.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import statistics
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.fresh import ROOT, base_folder, measure, new_folder
from benchmarks.letters import KIND, payload, resident
from benchmarks.report import Ratio, Row, Table
from benchmarks.sqlite_redrive import app_on, drain, drain_new_file, fill
from redrive.core.letter import Category, Draft, Failure, Status
from redrive.core.moves import Move
from redrive.engine.clock import new_id
from redrive.stores.contract import Want

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from benchmarks.report import Report
    from redrive import Redrive
    from redrive.stores.contract import Store


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much and how often."""

    failed: int
    delivered: int
    drained: int
    worked: int  # letters over which a worker's memory is watched; 0 for not at all
    runs: int
    calls: int  # of each question


FULL = Sizes(failed=1_000_000, delivered=1_000_000, drained=50_000, worked=500_000, runs=3, calls=5)
QUICK = Sizes(failed=20_000, delivered=20_000, drained=10_000, worked=0, runs=1, calls=3)

KINDS = (KIND, "order.paid", "order.shipped", "mail.welcome", "stock.changed")
ERRORS = ("TimeoutError", "ConnectionError", "httpx.ReadTimeout", "KeyError", "ValueError", "OSError", "DataError")
GROUPS = 400
QUESTIONS = {
    "ls": "",
    "ls status:failed": "status:failed",
    "ls status:delivered": "status:delivered",
    "ls by kind": f"status:failed kind:{KIND}",
    "ls by queue": "status:failed queue:default",
    "ls by error type": "status:failed error_type:KeyError",
    "ls by category": "status:failed category:network",
    "ls by group, the biggest": "status:failed group:" + format(0, "016x"),
    "ls by group, a small one": "status:failed group:" + format(7, "016x"),
    "ls by error text, half of all": "status:failed error:~upstream-0",
    "ls by error text, few": "status:failed error:~upstream-399",
}
_CONTENTS = 2  # raised when what is built changes
_PAGE = 5_000
_FLAT = 8.0  # MB; a leak of 32 bytes a letter does not fit


def add_to(report: Report) -> None:
    """Measure everything and add it to *report*."""
    sizes = QUICK if report.quick else FULL
    old = f"{sizes.failed:,} failed and {sizes.delivered:,} delivered letters"
    prepared = prepare(sizes)
    rates = Table(title="Beside old letters", unit="letters/s", rows=[])
    report.tables.append(rates)
    with new_folder() as folder:
        _copy(prepared, folder)
        rates.rows.extend(_drains(report, sizes, folder, old))
        _add_answers(report, sizes, folder, old)
    rates.rows.append(_replays(report, sizes, prepared))
    if sizes.worked:
        _add_growth(report, "worker", [drain_new_file(sizes.worked, samples=True)["memory"]])


# ---------------------------------------------------------------------- the prepared file


def prepare(sizes: Sizes) -> Path:
    """Return a file with that history; it is built once and kept until the schema or its contents change."""
    stamp = hashlib.sha256(b"%d" % _CONTENTS)
    for migration in sorted((ROOT / "src/redrive/stores/sqlite/migrations").glob("*.sql")):
        stamp.update(migration.read_bytes())
    name = f"history-{sizes.failed}-{sizes.delivered}"
    kept = base_folder() / f"{name}-{stamp.hexdigest()[:12]}.db"
    if not kept.exists():
        for outdated in base_folder().glob(f"{name}-*.db"):
            outdated.unlink()
        with new_folder() as folder:
            measure(build, folder, failed=sizes.failed, delivered=sizes.delivered)
            (folder / "redrive.db").rename(kept)
    return kept


def _copy(prepared: Path, folder: Path) -> None:
    shutil.copyfile(prepared, folder / "redrive.db")


def build(folder: Path, failed: int, delivered: int) -> dict[str, Any]:
    """Make the file through the store's own functions."""
    asyncio.run(_build(folder, failed, delivered))
    return {"bytes": (folder / "redrive.db").stat().st_size}


async def _build(folder: Path, failed: int, delivered: int) -> None:
    async with app_on(folder) as app:
        for start in range(0, max(failed, delivered), _PAGE):
            await app.store.put([_dead(i) for i in range(start, min(start + _PAGE, failed))])
            await _deliver(app.store, range(start, min(start + _PAGE, delivered)))
        stats = await app.desk.stats()
        assert stats.balanced, stats.books
        assert (stats.books["failed"], stats.books["delivered"]) == (failed, delivered), stats.books


async def _deliver(store: Store, numbers: range) -> None:
    if not numbers:
        return
    await store.put([_draft(i) for i in numbers])
    claims = await store.claim([Want("default", KINDS, len(numbers))], lease=600, worker="history")
    accepted = await store.settle([(claim, Move(Status.DELIVERED, "succeeded")) for claim in claims])
    assert len(accepted) == len(numbers)
    assert all(accepted)


def _draft(i: int, failure: Failure | None = None) -> Draft:
    body = msgspec.json.encode(payload(i))
    return Draft(id=new_id(), queue="default", kind=KINDS[i % len(KINDS)], payload=body, failure=failure)


def _dead(i: int) -> Draft:
    group = i // 2 % GROUPS if i % 2 else 0  # as in an outage: half of them have one cause
    error = ERRORS[group % len(ERRORS)]
    failure = Failure(
        error_type=error,
        message=f"upstream-{group} did not answer order {i} within 30 seconds",
        category=list(Category)[group % len(Category)],
        rule=f"type {error}",
        fingerprint=format(group, "016x"),
        template=f"upstream-{group} did not answer order <n> within <n> seconds",
    )
    return _draft(i, failure)


# ---------------------------------------------------------------------- does draining slow down


def _drains(report: Report, sizes: Sizes, folder: Path, old: str) -> list[Row]:
    empty, full = [], []
    for _ in range(sizes.runs):  # by turns, so that a machine that changes its pace does so for both
        empty.append(_rate(drain_new_file(sizes.drained)))
        measure(fill, folder, n=sizes.drained)
        full.append(_rate(measure(drain, folder, n=sizes.drained, engine="async")))
    rows = [
        _row("drain, new file", empty, sizes.drained),
        _row(f"drain, beside {old}", full, sizes.drained),
    ]
    share = 100 * rows[1].median / rows[0].median
    report.ratios.append(Ratio(what=f"drain beside {old}, of the new file's", value=share, bar=80, unit="%"))
    return rows


def _rate(answer: dict[str, Any]) -> float:
    return float(answer["n"]) / float(answer["seconds"])


def _row(setting: str, runs: list[float], n: int) -> Row:
    return Row(name="redrive", setting=setting, n=n, runs=tuple(runs), ours=True)


# ---------------------------------------------------------------------- do looks stay quick


def _add_answers(report: Report, sizes: Sizes, folder: Path, old: str) -> None:
    found = measure(answers, folder, calls=sizes.calls)
    rows = [_row(name, times, sizes.calls) for name, times in found.items()]
    report.tables.append(Table(title=f"The operator's looks beside {old}", unit="ms", rows=rows))
    for verb in ("ls", "groups", "stats"):
        slowest = max(row.median for row in rows if row.setting.split()[0] == verb)
        report.ratios.append(Ratio(what=f"{verb}, the slowest", value=slowest, bar=200, at_least=False, unit="ms"))


def answers(folder: Path, calls: int) -> dict[str, list[float]]:
    """Ask each question a few times, each time on connections that have read nothing yet."""
    questions: dict[str, Callable[[Redrive], Awaitable[Any]]] = {
        **{name: partial(_ls, query) for name, query in QUESTIONS.items()},
        "groups": lambda app: app.desk.groups(),
        "groups by kind": lambda app: app.desk.groups(f"kind:{KIND}"),
        "stats": lambda app: app.desk.stats(),
    }
    return {name: [asyncio.run(_ask(folder, ask)) for _ in range(calls)] for name, ask in questions.items()}


def _ls(query: str, app: Redrive) -> Awaitable[Any]:
    return app.desk.ls(query)


async def _ask(folder: Path, ask: Callable[[Redrive], Awaitable[Any]]) -> float:
    async with app_on(folder) as app:
        start = time.perf_counter()
        found = await ask(app)
        milliseconds = (time.perf_counter() - start) * 1_000
    assert found.letters if hasattr(found, "letters") else found
    return milliseconds


# ---------------------------------------------------------------------- bulk replay


def _replays(report: Report, sizes: Sizes, prepared: Path) -> Row:
    found = [_replay_once(prepared, sizes.failed) for _ in range(sizes.runs)]
    row = _row("bulk replay by plan, no rate", [_rate(answer) for answer in found], sizes.failed)
    report.ratios.append(Ratio(what="bulk replay", value=row.median, bar=20_000, unit="letters/s"))
    start = max(answer["start_ms"] for answer in found)
    report.notes.append(f"Bulk replay: nothing is counted first; the plan was kept after {start:.1f} ms at most.")
    _add_growth(report, "bulk replay", [answer["memory"] for answer in found])
    return row


def _replay_once(prepared: Path, failed: int) -> dict[str, Any]:
    with new_folder() as folder:
        _copy(prepared, folder)
        return measure(replay, folder, failed=failed)


def replay(folder: Path, failed: int) -> dict[str, Any]:
    """Replay every failed letter by one plan."""
    return asyncio.run(_replay(folder, failed))


async def _replay(folder: Path, failed: int) -> dict[str, Any]:
    memory: list[tuple[int, float]] = []
    async with app_on(folder) as app:
        start = time.perf_counter()
        plan = await app.desk.start("replay", "status:failed", reason="benchmark")
        started = time.perf_counter()
        done = await app.desk.carry_out(plan.id, progress=lambda plan: memory.append((plan.acted, resident())))
        ended = time.perf_counter()
        stats = await app.desk.stats()
    assert stats.balanced, stats.books
    assert (done.acted, done.skipped, stats.books["pending"]) == (failed, 0, failed), (done, stats.books)
    return {
        "n": failed,
        "seconds": ended - start,
        "start_ms": (started - start) * 1_000,
        "memory": memory,
    }


# ---------------------------------------------------------------------- does memory stay flat


def _add_growth(report: Report, what: str, runs: list[list[tuple[int, float]]]) -> None:
    """Judge the growth of a process's memory over the second half of its letters."""
    if report.quick:  # in a short run the database's page cache is still filling, and hides everything
        return
    grown = [growth(samples) for samples in runs]
    most = max(megabytes for samples in runs for _, megabytes in samples)
    report.notes.append(f"Memory, {what}: {most:.0f} MB resident at most, the database's page cache (64 MB) included.")
    name = f"memory grown over the second half, {what} of {runs[0][-1][0]:,} letters"
    report.ratios.append(Ratio(what=name, value=statistics.median(grown), bar=_FLAT, at_least=False, unit="MB"))


def growth(samples: list[tuple[int, float]]) -> float:
    """Return by how many MB a line through the second half of *samples* rises."""
    half = samples[len(samples) // 2 :]
    slope, _ = statistics.linear_regression(*zip(*half, strict=True))
    return float(slope) * (half[-1][0] - half[0][0])
