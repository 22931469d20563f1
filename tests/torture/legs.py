"""
The long forms, leg by leg.

Owns how much of each fault makes a leg, and from which seed: leg n of a run is the same
whenever it is run, so that a failure is replayed by one line.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.servers import kafka, postgres
from tests.stores.spool.outage import through_an_outage
from tests.torture.nursery import Nursery
from tests.torture.runs import crowd, held, inbox, jumps, kills, moves, plug, powercut, zombies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.torture.checker import Verdict
    from tests.torture.sampler import Outcome

_COUNTED = (
    "attempted", "acknowledged", "recovered", "delivered", "failed", "runs", "duplicated_runs", "refused",
    "lost", "unexpected", "stale", "stuck", "unearned",
)  # fmt: skip


class Leg(NamedTuple):
    """What a leg came to."""

    cycles: int
    counts: dict[str, int]
    problems: list[str]
    worst: dict[str, float] = {}  # noqa: RUF012 - never changed


class Form(NamedTuple):
    """A long form: what one leg does, how many cycles a leg has, how many cycles there are in all."""

    leg: Callable[[int, int, Path], Leg]
    size: int
    target: int


def _kills(seed: int, cycles: int, folder: Path) -> Leg:
    return _leg(kills.at_random(folder, cycles, seed))


def _libraries(seed: int, cycles: int, folder: Path) -> Leg:
    """Every worker also looks at the file with another SQLite library, all the time."""
    return _leg(kills.at_random(folder, cycles, seed, looking=True))


def _moves(seed: int, cycles: int, folder: Path) -> Leg:
    """The file is moved and replaced under two workers; a cycle is a move."""
    verdict = moves.at_random(folder, cycles, seed)
    return Leg(cycles, _counts([verdict]), verdict.problems)


def _pg_workers(seed: int, cycles: int, folder: Path) -> Leg:
    with postgres.running(18) as server:
        return _leg(kills.at_random(folder, cycles, seed, url=server.url))


def _pg_server(seed: int, cycles: int, folder: Path) -> Leg:
    """Every fourth leg the server dies while letters of dead workers are rescued."""
    with postgres.running(18) as server:
        return _leg(plug.at_random(folder, server, cycles, seed, rescue=seed % 4 == 0))


def _pg_clock(seed: int, cycles: int, folder: Path) -> Leg:
    """A cycle is a jump of the server's clock."""
    with postgres.running(18) as server:
        found = jumps.at_random(folder, server, cycles, seed)
    return Leg(cycles, _counts([found.verdict]), found.problems)


def _kafka_kills(seed: int, cycles: int, folder: Path) -> Leg:
    """Members of a consumer group die, one for every hundred records; a cycle is a record."""
    from tests.torture.runs.brokers import kafka_kills  # noqa: PLC0415 - needs a Kafka client, which the others do not

    with kafka.Broker() as broker:
        found = kafka_kills.at_random(broker.bootstrap, folder, cycles, max(1, cycles // 100), seed)
    counted = ("produced", "kills", "handled", "dead", "ran_twice", "dead_twice", "looks")
    return Leg(cycles, {name: getattr(found, name) for name in counted}, found.problems)


def _pipeline_kills(seed: int, cycles: int, folder: Path) -> Leg:
    """Engines and modules of a pipeline die, one for every two hundred documents; a cycle is a document."""
    from tests.torture.runs.brokers import pipeline_kills  # noqa: PLC0415 - needs Kafka and gRPC, which the others do not

    with kafka.Broker() as broker:
        found = pipeline_kills.at_random(broker.bootstrap, folder, cycles, max(1, cycles // 200), seed)
    counted = ("documents", "kills", "ended", "dead", "letters", "quarantined", "replayed", "readmitted")
    repeats = {f"repeats_{lane}": number for lane, number in found.repeats.items()}
    return Leg(cycles, {name: getattr(found, name) for name in counted} | repeats, found.problems)


def _pg_crowd(_seed: int, cycles: int, folder: Path) -> Leg:
    """Eight processes; a cycle is a letter."""
    with postgres.running(18) as server:
        verdict = crowd.drain(folder, server.url, processes=8, letters=cycles)
    return Leg(cycles, _counts([verdict]), verdict.problems)


def _pg_lanes(_seed: int, cycles: int, folder: Path) -> Leg:
    """Eight processes, fifty letters a key; a cycle is a letter."""
    with postgres.running(18) as server:
        verdict = crowd.drain(folder, server.url, processes=8, letters=cycles, keys=max(1, cycles // 50))
    return Leg(cycles, _counts([verdict]), verdict.problems)


def _pg_held(_seed: int, cycles: int, _folder: Path) -> Leg:
    """A transaction held open at 500 letters a second; a cycle is a second."""
    with postgres.running(18) as server:
        found = asyncio.run(held.latency(server.url, seconds=cycles, rate=500))
        beside = asyncio.run(held.latency(server.url, seconds=min(cycles, 20), rate=500, held=False))
    bound = 3 * found.first_p50 + 10
    problems = [f"claims became slow: {found}"] if found.last_p50 > bound else []
    worst = {f"held_{name}_ms": value for name, value in found._asdict().items() if name != "letters"}
    return Leg(cycles, {"delivered": found.letters}, problems, worst | {"free_last_p50_ms": beside.last_p50})


def _leg(outcome: Outcome) -> Leg:
    found = outcome.sweeps
    more = {"samples": outcome.samples, "sweeps": found.sweeps, "leases_ended": found.ended, "rescued": outcome.rescued}
    worst = {
        "overdue_ms": found.overdue_ms, "overdue_while_a_worker_ran_ms": found.able_ms, "sweep_ms": found.sweep_ms,
        "sampler_stall_ms": outcome.stall_ms, "intervals_between_sweeps": found.rested,
        "intervals_in_a_sweep": found.starved,
    }  # fmt: skip
    return Leg(outcome.cycles, _counts([outcome.verdict]) | more, outcome.verdict.problems, worst)


def _points(seed: int, cycles: int, folder: Path) -> Leg:
    """Every named point: with one death or two in a row, at the first pass or a later one."""
    points = kills.named_points()
    chosen = [
        (points[(seed + n) % len(points)], 1 + (n % 3 == 2), 1 + (seed // len(points)) % 5) for n in range(cycles)
    ]
    with Nursery() as nursery, ThreadPoolExecutor(4) as pool:
        runs = [
            pool.submit(kills.at_point, nursery, folder / f"{number}", point, times=times, nth=nth)
            for number, (point, times, nth) in enumerate(chosen)
        ]
        verdicts = [run.result() for run in runs]
    problems = [
        f"{where}: {problem}" for where, each in zip(chosen, verdicts, strict=True) for problem in each.problems
    ]
    return Leg(cycles, _counts(verdicts), problems)


def _zombies(seed: int, cycles: int, folder: Path) -> Leg:
    with Nursery() as nursery, ThreadPoolExecutor(4) as pool:
        runs = [
            pool.submit(
                zombies.awake_again, nursery, folder / f"{n}", zombies.MOMENTS[n % len(zombies.MOMENTS)], seed=seed + n
            )
            for n in range(cycles)
        ]
        verdicts = [run.result() for run in runs]
    return Leg(cycles, _counts(verdicts), [problem for verdict in verdicts for problem in verdict.problems])


def _powercuts(seed: int, cycles: int, folder: Path) -> Leg:
    """Cut as many runs at once as there are cores, *CUTS_PER_RUN* cuts each."""
    processes = os.cpu_count() or 1
    share = max(1, cycles // powercut.CUTS_PER_RUN // processes)
    cuts = cycles // share // processes
    with Nursery() as nursery:
        results = [folder / f"{number}.json" for number in range(processes)]
        pids = [
            nursery.start(
                "tests.torture.runs.powercut:batch",
                first_seed=seed * 1_000 + number * share, runs=share, cuts=cuts, result=str(path),
            )
            for number, path in enumerate(results)
        ]  # fmt: skip
        codes = [nursery.wait(pid, 3_600) for pid in pids]
    reports = [report for path in results if path.exists() for report in json.loads(path.read_text())]
    problems = [f"run {report['seed']}: {problem}" for report in reports for problem in report["problems"]]
    problems += [f"a process ended with {code}" for code in codes if code]
    counts = {name: sum(report[name] for report in reports) for name in ("cuts", "answers", "reopened")}
    return Leg(counts["cuts"], counts | {"runs_cut": len(reports)}, problems)


def _inbox(seed: int, cycles: int, folder: Path) -> Leg:
    """A cycle is a kill of the inbox, under 1,000 senders."""
    found = asyncio.run(inbox.at_random(folder, cycles, seed, senders=1_000))
    return Leg(cycles, found.counts | {"kills": cycles}, found.problems)


def _spool_outage(_seed: int, cycles: int, folder: Path) -> Leg:
    """A cycle is a second without PostgreSQL, at 500 letters a second."""
    with postgres.running(18) as server:
        found = asyncio.run(through_an_outage(server, folder, rate=500, away=float(cycles)))
    counts = {"accepted": found.accepted, "spooled": found.spooled, "letters_per_second": round(found.rate)}
    return Leg(cycles, counts, found.problems, {"seconds_behind": round(found.seconds, 1)})


FORMS = {
    "inbox": Form(_inbox, 50, 50),
    "spool-outage": Form(_spool_outage, 60, 60),
    "kills": Form(_kills, 250, 10_000),
    "libraries": Form(_libraries, 250, 5_000),
    "moves": Form(_moves, 50, 1_000),
    "points": Form(_points, len(kills.named_points()), 10 * len(kills.named_points())),
    "zombies": Form(_zombies, 20, 1_000),
    "powercuts": Form(_powercuts, 10_000, 1_000_000),
    "pg-workers": Form(_pg_workers, 100, 1_000),
    "pg-server": Form(_pg_server, 25, 1_000),
    "pg-clock": Form(_pg_clock, 100, 1_000),
    "pg-crowd": Form(_pg_crowd, 100_000, 100_000),
    "pg-lanes": Form(_pg_lanes, 50_000, 50_000),
    "pg-held": Form(_pg_held, 60, 60),
    "kafka-kills": Form(_kafka_kills, 10_000, 50_000),
    "pipeline-kills": Form(_pipeline_kills, 10_000, 100_000),
}


def run_leg(name: str, seed: int, cycles: int) -> tuple[Leg, float]:
    """Run one leg in a folder of its own, which is kept if something is wrong."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix=f"redrive-{name}-"))
    leg = FORMS[name].leg(seed, cycles, folder)
    if leg.problems:
        print(f"kept for a look: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return leg, time.monotonic() - began


def _counts(verdicts: Iterable[Verdict]) -> dict[str, int]:
    found: dict[str, Any] = dict.fromkeys(_COUNTED, 0)
    for verdict in verdicts:
        for name in _COUNTED:
            found[name] += getattr(verdict, name)
    return found
