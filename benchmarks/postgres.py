"""
The PostgreSQL store beside other queues on the same server, and a raw loop on the same driver.

Owns which cases run, with what sizes, and which figures are set side by side. One server, with
fsync on and its data on a real disk; a new database for every run of every contender.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks import postgres_history as history
from benchmarks import postgres_server as server
from benchmarks.fresh import ABSENT, measure, new_folder
from benchmarks.postgres_drain import PUT_AT_ONCE, fill_and_drain
from benchmarks.postgres_redrive import transactions
from benchmarks.postgres_waking import waking
from benchmarks.report import Ratio, Report, Row, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

BATCH = 500
_DATABASE = "bench"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much and how often."""

    letters: int
    singles: int  # where a letter takes milliseconds
    runs: int
    wakes: int
    transactions: int
    extras: bool  # rows that no ratio needs
    history: history.Sizes


FULL = Sizes(50_000, 5_000, runs=3, wakes=300, transactions=3_000, extras=True, history=history.FULL)
QUICK = Sizes(8_000, 400, runs=1, wakes=20, transactions=200, extras=False, history=history.QUICK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One contender with one setting and a number of processes."""

    name: str
    processes: int
    setting: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    rival: bool = False
    single: bool = False
    extra: bool = False
    held: bool = False

    @property
    def title(self) -> str:
        """What the table says of it."""
        workers = "1 process" if self.processes == 1 else f"{self.processes} processes"
        return f"{workers}, {self.setting}" if self.setting else workers


def _redrive(processes: int, **how: Any) -> Entry:
    return Entry(name="redrive", processes=processes, **how)


def _pgqueuer(processes: int, batch: int, **how: Any) -> Entry:
    settings = {"batch": batch}
    return Entry(
        name="pgqueuer", processes=processes, setting=f"batch_size {batch}", settings=settings, rival=True, **how
    )


def _raw(processes: int, **how: Any) -> Entry:
    setting = f"batches of {BATCH} on two connections each"
    return Entry(name="raw asyncpg", processes=processes, setting=setting, settings={"batch": BATCH}, **how)


def _procrastinate(processes: int, **how: Any) -> Entry:
    return Entry(
        name="procrastinate",
        processes=processes,
        setting="concurrency 10",
        settings={"concurrency": 10},
        single=True,
        **how,
    )


DRAINS = [
    *(_redrive(processes, extra=processes > 2) for processes in (1, 2, 4)),
    _pgqueuer(1, 100),
    _pgqueuer(1, 1_000, extra=True),
    _pgqueuer(2, 100, extra=True),
    _pgqueuer(2, 1_000),
    _pgqueuer(4, 1_000, extra=True),
    _procrastinate(1),
    _procrastinate(2, extra=True),
    *(_raw(processes, extra=processes > 1) for processes in (1, 2, 4)),
]
HELD = [_redrive(1), _redrive(1, held=True), _raw(1, held=True, extra=True), _pgqueuer(1, 100, held=True, extra=True)]


def run(*, quick: bool) -> Report:
    """Measure everything, one case at a time."""
    sizes = QUICK if quick else FULL
    report = Report(name="postgres", quick=quick)
    with server.serving() as url:
        version, buffers = server.value(url, "SHOW server_version"), server.value(url, "SHOW shared_buffers")
        report.notes.append(f"PostgreSQL {version}, shared_buffers {buffers}, fsync, synchronous_commit on; uvloop.")
        old = history.prepare(url, sizes.history)
        _add_drains(report, url, sizes)
        _add_transactions(report, url, sizes)
        _add_waking(report, url, sizes)
        _add_held(report, url, sizes)
        _add_history(report, url, sizes, old)
    return report


# ---------------------------------------------------------------------- filling and draining


def _add_drains(report: Report, url: str, sizes: Sizes) -> None:
    entries = [entry for entry in DRAINS if sizes.extras or not entry.extra]
    found = _measure_all(report, url, sizes, entries)
    drained = [_row(entry, answers, "seconds") for entry, answers in found]
    puts = [_row(entry, answers, "put") for entry, answers in _once_each(found)]
    report.tables.append(Table(title="Drain: handled and acknowledged", unit="letters/s", rows=drained))
    report.tables.append(Table(title="Enqueue: durable when the call returns", unit="letters/s", rows=puts))
    one, two = _median(drained, "redrive", "1 process"), _median(drained, "redrive", "2 processes")
    ratios = [
        ("drain, one process each, beside pgqueuer at its best", one, _median(drained, "pgqueuer", "1 p"), 2.5, 3.5),
        ("drain, one process each, beside the raw loop", one, _median(drained, "raw asyncpg", "1 p"), 0.55, None),
        ("drain, two processes each, beside pgqueuer at its best", two, _median(drained, "pgqueuer", "2 p"), 1.5, None),
        ("drain, one process each, beside procrastinate", one, _median(drained, "procrastinate", "1 p"), 40, None),
        ("enqueue in batches, beside pgqueuer", _median(puts, "redrive"), _median(puts, "pgqueuer"), 1, None),
    ]
    report.ratios += [
        Ratio(what=what, value=ours / theirs, bar=bar, aim=aim) for what, ours, theirs, bar, aim in ratios if theirs
    ]


def _measure_all(
    report: Report, url: str, sizes: Sizes, entries: list[Entry]
) -> list[tuple[Entry, list[dict[str, Any]]]]:
    """Measure by turns, so that a machine that changes its pace does so for all."""
    found: list[list[dict[str, Any]]] = [[] for _ in entries]
    absent = set()
    for _ in range(sizes.runs):
        for entry, answers in zip(entries, found, strict=True):
            answer = _measure(url, sizes, entry)
            if ABSENT in answer:
                absent.add(entry.name)
            else:
                answers.append(answer)
    report.notes += [f"{name} is not installed here; its rows are missing." for name in sorted(absent)]
    return [(entry, answers) for entry, answers in zip(entries, found, strict=True) if answers]


def _measure(url: str, sizes: Sizes, entry: Entry) -> dict[str, Any]:
    n = sizes.singles if entry.single else sizes.letters
    with new_folder() as folder:
        return measure(
            fill_and_drain,
            folder,
            url=server.new_database(url, _DATABASE),
            contender=entry.name,
            n=n,
            processes=entry.processes,
            settings=entry.settings,
            held=entry.held,
        )


def _once_each(
    found: Iterable[tuple[Entry, list[dict[str, Any]]]],
) -> list[tuple[Entry, list[dict[str, Any]]]]:
    """Of each contender keep one: filling does not depend on who drains."""
    return list({entry.name: (entry, answers) for entry, answers in reversed(list(found))}.values())[::-1]


def _row(entry: Entry, answers: list[dict[str, Any]], phase: str) -> Row:
    return Row(
        name=entry.name,
        setting=entry.title if phase == "seconds" else f"{PUT_AT_ONCE:,} a call",
        n=answers[0]["n"],
        runs=tuple(answer["n"] / answer[phase] for answer in answers),
        ours=entry.name == "redrive",
        rival=entry.rival,
    )


def _median(rows: list[Row], name: str, setting: str = "") -> float:
    """Return the best median among the rows of *name* whose setting begins like this; 0 if there are none."""
    return max((row.median for row in rows if row.name == name and row.setting.startswith(setting)), default=0.0)


# ---------------------------------------------------------------------- one letter at a time


def _add_transactions(report: Report, url: str, sizes: Sizes) -> None:
    runs = [_one(transactions, url, n=sizes.transactions) for _ in range(sizes.runs)]
    names = {
        "insert": ("bare INSERT", "the same row, by hand"),
        "enqueue": ("redrive", "outbox_enqueue, workers find it when they look next"),
        "enqueue and wake": ("redrive", "outbox_enqueue, which wakes a worker at the commit"),
    }
    rows = [
        Row(
            name=name,
            setting=setting,
            n=sizes.transactions,
            runs=tuple(run[way] / sizes.transactions * 1e6 for run in runs),
            ours=name == "redrive",
        )
        for way, (name, setting) in names.items()
    ]
    report.tables.append(Table(title="One letter in a transaction of its own", unit="µs", rows=rows))
    cost = statistics.median(run["enqueue"] / run["insert"] for run in runs)
    report.ratios.append(
        Ratio(what="a transaction that enqueues, beside a bare INSERT", value=cost, bar=1.3, at_least=False)
    )


def _add_waking(report: Report, url: str, sizes: Sizes) -> None:
    rows = []
    for name in ("redrive", "pgqueuer", "procrastinate"):
        answer = _one(waking, url, n=sizes.wakes, contender=name)
        if ABSENT in answer:
            continue
        ordered = sorted(answer["ms"])
        for share in (50, 99):
            figure = ordered[min(len(ordered) - 1, len(ordered) * share // 100)]
            rows.append(Row(name=name, setting=f"p{share}", n=sizes.wakes, runs=(figure,), ours=name == "redrive"))
    report.tables.append(Table(title="Idle wake-up: from the commit to the handler's first line", unit="ms", rows=rows))


def _one(case: Any, url: str, **arguments: Any) -> dict[str, Any]:
    with new_folder() as folder:
        return measure(case, folder, url=server.new_database(url, _DATABASE), **arguments)


# ---------------------------------------------------------------------- beside others' transactions and old letters


def _add_held(report: Report, url: str, sizes: Sizes) -> None:
    entries = [entry for entry in HELD if sizes.extras or not entry.extra]
    found = _measure_all(report, url, sizes, entries)
    rows = []
    for entry, answers in found:
        row = _row(entry, answers, "seconds")
        beside = "a transaction held open elsewhere" if entry.held else "nothing"
        rows.append(
            Row(name=row.name, setting=f"{row.setting}, beside {beside}", n=row.n, runs=row.runs, ours=row.ours)
        )
    report.tables.append(Table(title="Drain beside an old transaction", unit="letters/s", rows=rows))
    lost = 100 * (1 - rows[1].median / rows[0].median)
    report.ratios.append(
        Ratio(what="drain beside a held transaction: lost", value=lost, bar=30, aim=3, at_least=False, unit="%")
    )


def _add_history(report: Report, url: str, sizes: Sizes, old: str) -> None:
    words = f"{sizes.history.failed:,} failed and {sizes.history.delivered:,} delivered letters"
    table = Table(title="Beside old letters", unit="letters/s", rows=[])
    report.tables.append(table)
    copy = server.new_database(url, "bench_old", old)
    empty, full = [], []
    for _ in range(sizes.runs):  # by turns, so that a machine that changes its pace does so for both
        empty.append(_measure(url, sizes, _redrive(1)))
        with new_folder() as folder:
            full.append(
                measure(
                    fill_and_drain, folder, url=copy, contender="redrive", n=sizes.letters, processes=1, settings={}
                )
            )
    for setting, answers in (("drain, new table", empty), (f"drain, beside {words}", full)):
        runs = tuple(answer["n"] / answer["seconds"] for answer in answers)
        table.rows.append(Row(name="redrive", setting=setting, n=sizes.letters, runs=runs, ours=True))
    share = 100 * table.rows[1].median / table.rows[0].median
    report.ratios.append(Ratio(what=f"drain beside {words}, of the new table's", value=share, bar=80, unit="%"))
    history.add_looks(report, copy, sizes.history, words)
    history.add_replay(report, copy, sizes.history, table)
