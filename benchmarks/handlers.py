"""
Handlers that do real work, beside the same work without a store.

Owns which handlers run on which store, with what sizes, and the bars. It comes in parts of a few minutes each, and each
part is a report of its own. A share is our rate divided by that of bare lanes, or by the store's own drain of a handler
that does nothing where that is the lower limit.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks import handlers_cases as cases
from benchmarks import postgres_server as server
from benchmarks.fresh import ROOT, measure, new_folder
from benchmarks.report import Ratio, Report, Row, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Case = Callable[..., dict[str, Any]]

_OTHER_PYTHONS = (ROOT / ".venv" / "bin" / "python", ROOT / ".venv-3.11" / "bin" / "python")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much and how often."""

    runs: int
    seconds: float  # that a drain should take at the ideal rate
    most: int  # letters
    letters: int  # of handlers that do nothing


FULL = Sizes(runs=5, seconds=5.0, most=120_000, letters=40_000)
QUICK = Sizes(runs=1, seconds=0.4, most=4_000, letters=4_000)
TIMES = (0.005, 0.020, 0.001)  # in the order of the tables
CONCURRENCY = (10, 50)


PARTS = (
    "sqlite-10", "sqlite-50", "postgres-10", "postgres-50", "threads", "engines", "failing-sqlite", "failing-postgres",
    "latency", "pythons",
)  # fmt: skip


def run(*, quick: bool, part: str) -> Report:
    """Measure one part, one case at a time, contenders by turns."""
    report = Report(name=f"handlers-{part}", quick=quick)
    measured = {"threads": _threads, "engines": _engines, "latency": _latency, "pythons": _pythons}.get(part)
    if measured is not None:
        measured(report, QUICK if quick else FULL)
        return report
    with _store(part) as (name, store):
        if part.startswith("failing"):
            _failing(report, QUICK if quick else FULL, name, store)
        else:
            _waiting(report, QUICK if quick else FULL, name, store, int(part.rpartition("-")[2]))
    return report


@contextlib.contextmanager
def _store(part: str) -> Iterator[tuple[str, _Sqlite | _Postgres]]:
    """Give the store of a part, with its name."""
    if "sqlite" in part:
        yield "SQLite", _Sqlite()
        return
    with server.serving() as url:
        yield "PostgreSQL", _Postgres(url)


# ---------------------------------------------------------------------- stores


class _Sqlite:
    """A new file for each drain."""

    def drain(self, n: int, **arguments: Any) -> float:
        with new_folder() as folder:
            return _drained(f"sqlite:///{folder / 'redrive.db'}", folder, n, arguments)


class _Postgres:
    """A new database for each drain."""

    def __init__(self, url: str) -> None:
        self._url = url

    def drain(self, n: int, **arguments: Any) -> float:
        name = f"handlers_{uuid.uuid4().hex[:8]}"
        url = server.new_database(self._url, name)
        try:
            with new_folder() as folder:
                return _drained(url, folder, n, arguments)
        finally:
            server.drop_database(self._url, name)


def _drained(url: str, folder: Path, n: int, arguments: dict[str, Any]) -> float:
    measure(cases.fill, folder, url=url, n=n)
    if url.startswith("postgres"):
        server.calm(url)
    return _rate(measure(cases.drain, folder, url=url, n=n, **arguments))


def _bare(case: Case, n: int, seconds: float, concurrency: int) -> float:
    with new_folder() as folder:
        return _rate(measure(case, folder, n=n, seconds=seconds, concurrency=concurrency))


def _rate(answer: dict[str, Any]) -> float:
    return float(answer["n"]) / float(answer["seconds"])


def _size(sizes: Sizes, seconds: float, concurrency: int) -> int:
    return max(concurrency * 4, min(sizes.most, round(sizes.seconds * concurrency / seconds)))


def _by_turns(runs: int, *contenders: Callable[[], float]) -> list[tuple[float, ...]]:
    """Run the contenders one after the other, *runs* times; return the figures of each."""
    rounds = [[contender() for contender in contenders] for _ in range(runs)]
    return [tuple(figures) for figures in zip(*rounds, strict=True)]


def _row(name: str, setting: str, n: int, runs: tuple[float, ...]) -> Row:
    return Row(name=name, setting=setting, n=n, runs=runs, ours=name == "redrive", rival=name != "redrive")


# ---------------------------------------------------------------------- the tables


def _of(store: Any, n: int, **arguments: Any) -> Callable[[], float]:
    return lambda: store.drain(n, **arguments)


def _waiting(report: Report, sizes: Sizes, name: str, store: Any, slots: int) -> None:
    """Measure async handlers that wait, 5 ms first: that is what users have."""
    rows: list[Row] = []
    no_op = _by_turns(sizes.runs, _of(store, sizes.letters, way="plain"))[0]
    for seconds in TIMES:
        n = _size(sizes, seconds, slots)
        ours = _of(store, n, way="waits", seconds=seconds, concurrency=slots)
        bare, found = _by_turns(sizes.runs, lambda n=n, s=seconds, c=slots: _bare(cases.lanes, n, s, c), ours)
        setting = f"async, {seconds * 1000:.0f} ms, concurrency {slots}"
        rows += [_row("redrive", f"{name}: {setting}", n, found), _row("bare asyncio lanes", setting, n, bare)]
        report.ratios.append(_share(f"{name}: {setting}, beside bare lanes", found, bare, statistics.median(no_op)))
    rows.append(_row("redrive", f"{name}: async, does nothing, default concurrency", sizes.letters, no_op))
    report.tables.append(Table(title=f"Async handlers on {name}, concurrency {slots}", unit="letters/s", rows=rows))
    report.tables.append(_start_and_end(sizes, name, store))


def _start_and_end(sizes: Sizes, name: str, store: Any) -> Table:
    """Measure what a drain costs beside its letters; it is on our clock, and bare lanes have none of it."""
    one = _by_turns(sizes.runs, _of(store, 1, way="plain"))[0]
    row = _row("redrive", f"{name}: a drain of one letter", 1, tuple(1000 / rate for rate in one))
    return Table(title="From the call of run to its return, with one letter", unit="ms", rows=[row])


def _share(what: str, ours: tuple[float, ...], bare: tuple[float, ...], limit: float) -> Ratio:
    """Return our share of what bare lanes reach, or of the store's own limit where that is lower; say which it was."""
    lanes = statistics.median(bare)
    beside = what if lanes <= limit else f"{what} as far as the store's no-op drain allows"
    return Ratio(what=beside, value=statistics.median(ours) / min(lanes, limit), bar=0.9, aim=0.97)


def _threads(report: Report, sizes: Sizes) -> None:
    rows: list[Row] = []
    store = _Sqlite()
    limit = statistics.median(_by_turns(min(3, sizes.runs), _of(store, sizes.letters, way="plain"))[0])
    for seconds, slots in itertools.product(TIMES[:2], CONCURRENCY):
        n = _size(sizes, seconds, slots)
        ours = _of(store, n, way="thread", seconds=seconds, concurrency=slots)
        bare, found = _by_turns(sizes.runs, lambda n=n, s=seconds, c=slots: _bare(cases.pool, n, s, c), ours)
        setting = f"threads, {seconds * 1000:.0f} ms, concurrency {slots}"
        rows += [_row("redrive", f"SQLite: {setting}", n, found), _row("bare thread pool", setting, n, bare)]
        report.ratios.append(_share(f"SQLite: {setting}, beside a bare pool", found, bare, limit))
    report.tables.append(Table(title="Sync handlers in threads", unit="letters/s", rows=rows))


def _engines(report: Report, sizes: Sizes) -> None:
    """Measure one await, threads and processes beside a handler that never awaits; default settings."""
    store, n = _Sqlite(), sizes.letters
    ways = {
        "plain": "async, never awaits",
        "yields": "async, one sleep(0)",
        "thread": "threads",
        "process": "processes",
    }
    found = dict(zip(ways, _by_turns(sizes.runs, *(_of(store, n, way=way) for way in ways)), strict=True))
    rows = [_row("redrive", f"SQLite: {ways[way]}", n, runs) for way, runs in found.items()]
    report.tables.append(Table(title="Handlers that do nothing, by engine", unit="letters/s", rows=rows))
    plain = statistics.median(found["plain"])
    for way, bar, aim in (("yields", 0.6, 0.8), ("thread", 0.4, 0.6), ("process", 0.2, 0.3)):
        value = statistics.median(found[way]) / plain
        report.ratios.append(Ratio(what=f"{ways[way]} beside never awaiting", value=value, bar=bar, aim=aim))


def _failing(report: Report, sizes: Sizes, name: str, store: Any) -> None:
    kinds = {"": "none fail", "once": "10 % fail once, retried without a wait", "good": "10 % fail at their only try"}
    drains = [_of(store, sizes.letters, way="plain", fails=kind) for kind in kinds]
    found = dict(zip(kinds, _by_turns(sizes.runs, *drains), strict=True))
    rows = [_row("redrive", f"{name}: {kinds[kind]}", sizes.letters, runs) for kind, runs in found.items()]
    for kind in ("once", "good"):
        value = statistics.median(found[kind]) / statistics.median(found[""])
        report.ratios.append(Ratio(what=f"{name}: {kinds[kind]}, beside none", value=value, bar=0.7))
    report.tables.append(Table(title=f"Letters that fail, on {name}", unit="letters/s", rows=rows))


def _latency(report: Report, sizes: Sizes) -> None:
    answers = []
    for _ in range(sizes.runs):
        with new_folder() as folder:
            answers.append(measure(cases.latency, folder, url=f"sqlite:///{folder / 'redrive.db'}", n=100))
    waits, commits = ([answer[what] * 1000 for answer in answers] for what in ("wait", "commit"))
    rows = [
        _row("redrive", "SQLite: from enqueue to the handler's first line", 100, tuple(waits)),
        _row("bare disk", "write and fdatasync of one page", 100, tuple(commits)),
    ]
    report.tables.append(Table(title="An idle worker in the same process", unit="ms, median", rows=rows))
    value = statistics.median(waits) / statistics.median(commits)
    what = "from enqueue to the handler, beside one durable commit of the bare disk"
    report.ratios.append(Ratio(what=what, value=value, bar=3.0, at_least=False))


def _pythons(report: Report, sizes: Sizes) -> None:
    """Measure the same on Python 3.11, where tasks do not start eagerly, if the development environment has it."""
    other = next(_elevens(), None)
    if other is None:
        report.notes.append("No environment with Python 3.11 was found (`make test PYTHON=python3.11` makes one).")
        return
    rows: list[Row] = []
    for setting, way, arguments in (
        ("no-op", "plain", {}),
        ("5 ms, concurrency 50", "waits", {"seconds": 0.005, "concurrency": 50}),
    ):
        n = sizes.letters if way == "plain" else _size(sizes, 0.005, 50)
        now, old = _by_turns(sizes.runs, _on(None, n, way, arguments), _on(other, n, way, arguments))
        rows += [_row("redrive", f"{setting}, this Python", n, now), _row("redrive", f"{setting}, Python 3.11", n, old)]
        value = statistics.median(old) / statistics.median(now)
        report.ratios.append(Ratio(what=f"Python 3.11 beside this one, {setting}", value=value, bar=0.7, aim=0.9))
    report.tables.append(Table(title="Python 3.11", unit="letters/s", rows=rows))


def _elevens() -> Iterator[Path]:
    for python in _OTHER_PYTHONS:
        config = python.parent.parent / "pyvenv.cfg"
        if config.exists() and "version = 3.11" in config.read_text():
            yield python


def _on(python: Path | None, n: int, way: str, arguments: dict[str, Any]) -> Callable[[], float]:
    def drain() -> float:
        with new_folder() as folder:
            url = f"sqlite:///{folder / 'redrive.db'}"
            measure(cases.fill, folder, url=url, n=n)
            return _rate(measure(cases.drain, folder, python=python, url=url, n=n, way=way, **arguments))

    return drain
