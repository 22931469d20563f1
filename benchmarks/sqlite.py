"""
The embedded store beside other SQLite queues and a raw loop on the same driver.

Owns which cases run, with what sizes, and which figures are set side by side. Equal
durability for everybody; who runs with less is labelled and never counts as the fastest peer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks import sqlite_history, sqlite_peers, sqlite_raw, sqlite_redrive
from benchmarks.fresh import ABSENT, measure, new_folder
from benchmarks.report import Ratio, Report, Row, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.engine.handler import EngineName

PRODUCERS = 64
BATCH = 500
RAW_LOOP = ("raw apsw", "batch 500, a bare table of eight columns")


SAME_WRITES = ("raw apsw", "batch 500, redrive's own table and writes")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much and how often."""

    letters: int  # ours, and everybody who batches
    singles: int  # one commit a letter: fewer, because some of these slow down as their file grows
    runs: int
    turns: int  # in which we and the loops without a queue take turns
    cut: float | None  # seconds for each of a peer's two phases
    extras: bool  # rows that no ratio needs


FULL = Sizes(letters=50_000, singles=5_000, runs=3, turns=9, cut=None, extras=True)
QUICK = Sizes(letters=10_000, singles=2_000, runs=1, turns=1, cut=2.5, extras=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A case that puts, gets and acknowledges."""

    name: str
    setting: str
    case: Callable[..., dict[str, Any]]
    arguments: dict[str, Any]
    batch: int = 1
    raw: bool = False
    puts: bool = True  # whether its put rate is shown
    gets: bool = True  # whether its drain rate is shown
    extra: bool = False


PEERS = [
    Peer(
        name="huey",
        setting="SqliteHuey(fsync=True, results=False, cache_mb=64)",
        case=sqlite_peers.huey,
        arguments={},
    ),
    Peer(
        name="huey",
        setting="the same, 8 producer threads",
        case=sqlite_peers.huey,
        arguments={"threads": 8},
        gets=False,
        extra=True,
    ),
    Peer(name="litequeue", setting="set to FULL", case=sqlite_peers.litequeue, arguments={}),
    Peer(name="persist-queue", setting="SQLiteAckQueue", case=sqlite_peers.persist_queue, arguments={}),
    Peer(
        name="litequeue",
        setting="set to FULL, 500 puts a transaction",
        case=sqlite_peers.litequeue,
        arguments={"batch": BATCH},
        batch=BATCH,
        gets=False,
    ),
    Peer(
        name="honker",
        setting="500 a transaction, claim_batch(500)",
        case=sqlite_peers.honker,
        arguments={"batch": BATCH},
        batch=BATCH,
    ),
    Peer(name="raw apsw", setting="batch 1", case=sqlite_raw.raw_apsw, arguments={"batch": 1}, raw=True),
    Peer(
        name="raw apsw",
        setting="batch 500, acknowledge and claim in one commit",
        case=sqlite_raw.raw_apsw,
        arguments={"batch": BATCH, "together": True},
        batch=BATCH,
        raw=True,
        puts=False,
        extra=True,
    ),
]
BARE = Peer(
    name=RAW_LOOP[0],
    setting=RAW_LOOP[1],
    case=sqlite_raw.raw_apsw,
    arguments={"batch": BATCH},
    batch=BATCH,
    raw=True,
)
ASYNC = "app.run(until_idle=True), async handler"
ENGINES: list[tuple[EngineName, str]] = [
    ("thread", "threads"),
    ("process", "processes"),
]


def run(*, quick: bool) -> Report:
    """Measure everything, one case at a time."""
    sizes = QUICK if quick else FULL
    report = Report(name="sqlite", quick=quick)
    peers = [peer for peer in PEERS if sizes.extras or not peer.extra]
    measured = [(peer, answers) for peer in peers if (answers := _peer(peer, sizes, report))]
    awaited = _enqueue_rows(sizes)
    ours, bare, same = _taking_turns(sizes)
    measured.append((BARE, bare))
    drained = [_our_row(ASYNC, ours), *(_drain_row(engine, setting, sizes) for engine, setting in ENGINES)]
    awaited += [_row(peer, answers, "put") for peer, answers in measured if peer.puts]
    drained.append(_same_writes_row(sizes, same))
    drained += [_row(peer, answers, "get") for peer, answers in measured if peer.gets]
    report.tables.append(Table(title="Enqueue: durable when the call returns", unit="letters/s", rows=awaited))
    report.tables.append(Table(title="Drain: handled and acknowledged", unit="letters/s", rows=drained))
    report.ratios += _ratios(awaited, drained)
    report.notes.append(_same_writes_note(drained))
    sqlite_history.add_to(report)
    return report


def _peer(peer: Peer, sizes: Sizes, report: Report) -> list[dict[str, Any]]:
    n = sizes.singles if peer.batch == 1 else sizes.letters
    answers = []
    for _ in range(sizes.runs):
        with new_folder() as folder:
            answer = measure(peer.case, folder, n=n, cut=sizes.cut, **peer.arguments)
        if ABSENT in answer:
            report.notes.append(f"{peer.name} is not installed here; its rows are missing.")
            return []
        answers.append(answer)
    return answers


def _row(peer: Peer, answers: list[dict[str, Any]], phase: str) -> Row:
    level = answers[0]["synchronous"]
    return Row(
        name=peer.name,
        setting=peer.setting,
        n=min(answer[phase]["n"] for answer in answers),
        runs=tuple(answer[phase]["n"] / answer[phase]["seconds"] for answer in answers),
        rival=level == "FULL" and not peer.raw and (phase == "get" or peer.batch == 1),
        durable=level,
        remark="" if level == "FULL" else "a power cut may undo what it acknowledged",
    )


# ---------------------------------------------------------------------- ours


def _enqueue_rows(sizes: Sizes) -> list[Row]:
    awaited = f"app.enqueue, {PRODUCERS} concurrent producers, each awaits each letter"
    rows = [_enqueue_row(awaited, sizes, sqlite_redrive.enqueue, n=sizes.letters, producers=PRODUCERS)]
    if sizes.extras:
        rows.append(
            _enqueue_row("app.enqueue, 1 producer", sizes, sqlite_redrive.enqueue, n=sizes.singles, producers=1)
        )
    batched = f"app.enqueue_many, {BATCH} a call, 1 producer"
    return [*rows, _enqueue_row(batched, sizes, sqlite_redrive.enqueue_many, n=sizes.letters, batch=BATCH)]


def _enqueue_row(setting: str, sizes: Sizes, case: Callable[..., dict[str, Any]], **arguments: Any) -> Row:
    return _our_row(setting, [_on_new_file(case, **arguments) for _ in range(sizes.runs)])


def _on_new_file(case: Callable[..., dict[str, Any]], **arguments: Any) -> dict[str, Any]:
    with new_folder() as folder:
        return measure(case, folder, **arguments)


def _drain_row(engine: EngineName, setting: str, sizes: Sizes) -> Row:
    n = sizes.letters if sizes is FULL else sizes.singles
    return _our_row(setting, [sqlite_redrive.drain_new_file(n, engine) for _ in range(sizes.runs)])


def _taking_turns(sizes: Sizes) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Drain by ourselves and by the two loops, one after the other: the machine's mood changes within minutes."""
    ours, bare, same = [], [], []
    for _ in range(sizes.turns):
        ours.append(sqlite_redrive.drain_new_file(sizes.letters, "async"))
        bare.append(_on_new_file(BARE.case, n=sizes.letters, cut=sizes.cut, **BARE.arguments))
        same.append(sqlite_redrive.drain_by_hand(sizes.letters, BATCH))
    return ours, bare, same


def _same_writes_row(sizes: Sizes, answers: list[dict[str, Any]]) -> Row:
    runs = tuple(answer["n"] / answer["seconds"] for answer in answers)
    durable = answers[0]["synchronous"]
    return Row(name=SAME_WRITES[0], setting=SAME_WRITES[1], n=sizes.letters, runs=runs, durable=durable)


def _our_row(setting: str, answers: list[dict[str, Any]]) -> Row:
    return Row(
        name="redrive",
        setting=setting,
        n=answers[0]["n"],
        runs=tuple(answer["n"] / answer["seconds"] for answer in answers),
        ours=True,
        durable=answers[0]["synchronous"],
    )


# ---------------------------------------------------------------------- side by side


def _ratios(awaited: list[Row], drained: list[Row]) -> list[Ratio]:
    rates = {(row.name, row.setting): row.median for row in drained}
    putter, drainer = _fastest(awaited), _fastest(drained)
    ours_in, ours_out = awaited[0].median, drained[0].median
    peer = "beside the fastest peer at FULL"
    return [
        Ratio(what=f"enqueue, {peer} ({putter.name})", value=ours_in / putter.median, bar=6, aim=9),
        Ratio(what=f"drain, {peer} ({drainer.name})", value=ours_out / drainer.median, bar=12),
        Ratio(
            what="drain, beside a raw loop on a bare table, in batches of 500",
            value=ours_out / rates[RAW_LOOP],
            bar=0.5,
            aim=1,
        ),
    ]


def _same_writes_note(drained: list[Row]) -> str:
    """For reading only: the bar is the loop on the bare table."""
    rates = {(row.name, row.setting): row.median for row in drained}
    share = drained[0].median / rates[SAME_WRITES]
    return f"Drain, beside a raw loop with the same writes on redrive's own table: {share:.3f} ×; no bar."


def _fastest(rows: list[Row]) -> Row:
    return max((row for row in rows if row.rival), key=lambda row: row.median)
