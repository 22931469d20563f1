"""
Receive webhooks: the inbox beside a Starlette service, one that stores nothing, and the origin's shape.

Owns the cases, the tables, the bars, and the check that every accepted request is one stored letter. The server runs
in a process of its own, the senders in another. Knows no contender's inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import inbox_load
from benchmarks.fresh import ROOT, environment, measure, new_folder
from benchmarks.report import Ratio, Report, Row, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECTIONS = 64
NAMES = {
    "redrive": "redrive",
    "durable": "Starlette + aiosqlite",
    "mixed": "Starlette + aiosqlite, transactions mixed",
    "origin": "FastAPI + aiosqlite, the origin's shape",
    "nothing": "Starlette, stores nothing",
}
_STORED = {
    "redrive": "SELECT count(*), count(DISTINCT id) FROM letters WHERE origin = 'webhook:github'",
    "durable": "SELECT count(*), count(DISTINCT idempotency_key) FROM events",
    "mixed": "SELECT count(*), count(DISTINCT idempotency_key) FROM events",
    "origin": "SELECT count(*), count(DISTINCT idempotency_key) FROM events",
}
_DONE = {
    "redrive": "SELECT count(*) FROM letters WHERE status = 'delivered'",
    "origin": "SELECT count(*) FROM events WHERE status = 'completed'",
}
_SLOW = 500
_WARM = 200  # requests before the clock runs
_PATIENCE = 120.0  # seconds until what was accepted is handled


# ---------------------------------------------------------------------- one case, in a process of its own


def case(
    folder: Path, *, name: str, seconds: float, processing: bool = False, slow: int = 0, most: int = 10**9
) -> dict[str, Any]:
    """Send to one server; return what was measured, after the check that it stored what it accepted."""
    import uvloop  # noqa: PLC0415 - only cases need it

    path = folder / f"{name}.db"
    for old in folder.glob(f"{path.name}*"):
        old.unlink()
    with _server(name, path, processing=processing) as (port, pid):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            warm = runner.run(inbox_load.send(port, connections=8, seconds=5, most=_WARM, first=10**9))["sent"]
            found = runner.run(_load(port, pid, seconds, slow, most))
        accepted = warm + found["sent"]
        assert found["statuses"] == {202: found["sent"]}, found["statuses"]
        if processing:
            found["behind"] = _until_handled(name, path, accepted)
    if name in _STORED:  # every accepted request is one stored letter, and nothing else is stored
        assert _ask(path, _STORED[name]) == (accepted, accepted), (accepted, _ask(path, _STORED[name]))
    return found


async def _load(port: int, pid: int, seconds: float, slow: int, most: int) -> dict[str, Any]:
    slowly = [asyncio.create_task(inbox_load.drip(port)) for _ in range(slow)]
    if slow:
        await asyncio.sleep(2.0)  # all of them are connected and hold a request that is not complete
    sampler = asyncio.create_task(_sample(pid, samples := []))
    try:
        found = await inbox_load.send(port, connections=CONNECTIONS, seconds=seconds, most=most)
    finally:
        for task in (*slowly, sampler):
            task.cancel()
        await asyncio.gather(*slowly, sampler, return_exceptions=True)
    return found | {"memory": samples}


def _resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6


async def _sample(pid: int, samples: list[float]) -> None:
    """Note the server's resident memory in MB, ten times a second."""
    while True:
        samples.append(_resident(pid))
        await asyncio.sleep(0.1)


@contextlib.contextmanager
def _server(name: str, path: Path, *, processing: bool) -> Iterator[tuple[int, int]]:
    command = [sys.executable, "-m", "benchmarks.inbox_servers", name, str(path), "on" if processing else "off"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), process.pid
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        process.communicate()


def _ask(path: Path, question: str) -> tuple[int, ...]:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
        return tuple(database.execute(question).fetchone())


def _until_handled(name: str, path: Path, count: int) -> float:
    """Return how many seconds after the last answer everything was handled."""
    began = time.perf_counter()
    while _ask(path, _DONE[name]) != (count,):
        assert time.perf_counter() - began < _PATIENCE, f"{_ask(path, _DONE[name])} of {count} handled"
        time.sleep(0.05)
    return time.perf_counter() - began


# ---------------------------------------------------------------------- the whole benchmark


def run(*, quick: bool) -> Report:
    """Measure all contenders in turns, because the speed of a shared machine changes within minutes."""
    report = Report(name="inbox", quick=quick)
    turns, seconds = (1, 3.0) if quick else (5, 6.0)
    with new_folder() as folder:
        found = _in_turns(folder, list(NAMES), turns, seconds=seconds)
        _intake(report, found, turns)
        _processing(report, _in_turns(folder, list(_DONE), 1 if quick else 3, seconds=seconds, processing=True))
        quiet = found["redrive"]
        beside = [measure(case, folder, name="redrive", seconds=seconds, slow=_SLOW) for _ in range(1 if quick else 3)]
        _beside_slow(report, quiet, beside)
        seconds, most = (10.0, 30_000) if quick else (240.0, 1_000_000)
        _memory(report, measure(case, folder, name="redrive", seconds=seconds, most=most), most)
    return report


def _in_turns(folder: Path, names: list[str], turns: int, **arguments: Any) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(turns):
        for name in names:
            found[name].append(measure(case, folder, name=name, **arguments))
    return found


def _rows(found: dict[str, list[dict[str, Any]]], key: str, setting: str) -> list[Row]:
    return [
        Row(
            name=NAMES[name],
            setting=setting,
            n=round(statistics.median(each["sent"] for each in runs)),
            runs=tuple(float(each[key]) for each in runs),
            ours=name == "redrive",
            rival=name in ("durable", "origin"),
            durable="" if name == "nothing" else "FULL",
        )
        for name, runs in found.items()
    ]


def _median(found: dict[str, list[dict[str, Any]]], name: str, key: str) -> float:
    return statistics.median(each[key] for each in found[name])


def _ratio(found: dict[str, list[dict[str, Any]]], other: str, key: str = "rate") -> float:
    """Return the median of the turns' own ratios: both sides of each were measured within seconds."""
    pairs = zip(found["redrive"], found[other], strict=True)
    return statistics.median(ours[key] / theirs[key] for ours, theirs in pairs)


def _intake(report: Report, found: dict[str, list[dict[str, Any]]], turns: int) -> None:
    setting = f"{CONNECTIONS} connections, {inbox_load.BODY} bytes"
    report.tables += [
        Table(title="Accepted requests, processing off", unit="requests/s", rows=_rows(found, "rate", setting)),
        Table(title="Time to the answer, p99", unit="ms", rows=_rows(found, "p99", setting)),
        Table(title="Time to the answer, median", unit="ms", rows=_rows(found, "p50", setting)),
    ]
    report.ratios += [
        Ratio(what="accepted, beside Starlette + aiosqlite (FULL)", value=_ratio(found, "durable"), bar=4.0, aim=6.0),
        Ratio(what="p99, beside Starlette + aiosqlite", value=_ratio(found, "durable", "p99"), bar=1.0, at_least=False),
        Ratio(what="accepted, beside the one that stores nothing", value=_ratio(found, "nothing"), bar=0.5),
    ]
    report.notes.append(f"{turns} turns; each accepted request was found as one stored letter or row")


def _processing(report: Report, found: dict[str, list[dict[str, Any]]]) -> None:
    report.tables += [
        Table(title="Accepted requests while they are handled", unit="requests/s", rows=_rows(found, "rate", "")),
        Table(title="The same, p99", unit="ms", rows=_rows(found, "p99", "")),
        Table(title="The last was handled so long after its answer", unit="s", rows=_rows(found, "behind", "")),
    ]


def _beside_slow(report: Report, quiet: list[dict[str, Any]], beside: list[dict[str, Any]]) -> None:
    rows = _rows({"redrive": quiet}, "p99", "healthy senders alone")
    rows += _rows({"redrive": beside}, "p99", f"beside {_SLOW} that send a byte every half second")
    report.tables.append(Table(title="p99 of healthy senders", unit="ms", rows=rows))


def _memory(report: Report, found: dict[str, Any], most: int) -> None:
    sent = found["sent"]
    row = Row(
        name="redrive",
        setting=f"{CONNECTIONS} connections",
        n=sent,
        runs=(growth_of(found["memory"], sent),),
        ours=True,
    )
    title = "Growth of the server's memory in the second half"
    report.tables.append(Table(title=title, unit="MB for 100,000 requests", rows=[row]))
    why = "all that were planned" if sent == most else f"as many as the time allowed, of {most:,} planned"
    report.notes.append(f"memory: {sent:,} requests, {why}")


def growth_of(samples: list[float], requests: int) -> float:
    """Return the slope of a line through the second half of *samples*, in MB for 100,000 requests."""
    half = samples[len(samples) // 2 :]
    slope = statistics.linear_regression(range(len(half)), half).slope  # MB a sample
    return slope * len(samples) / requests * 100_000


def main() -> None:
    """`python -m benchmarks.inbox [REQUESTS]`: memory over many requests alone; a million take 3 to 8 minutes."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with new_folder() as folder:
        found = measure(case, folder, name="redrive", seconds=1_500, most=most)
    growth, rate = growth_of(found["memory"], most), found["rate"]
    print(f"{found['sent']:,} requests, {rate:,.0f}/s, {found['memory'][0]:.0f} to {found['memory'][-1]:.0f} MB")
    print(f"growth in the second half: {growth:.2f} MB for 100,000 requests")


if __name__ == "__main__":
    main()
