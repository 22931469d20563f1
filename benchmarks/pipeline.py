"""
A pipeline beside a bare gRPC client loop and a plain consume-call-produce loop.

Owns the parts, their sizes and their bars: the same module, in a process of its own, and the same concurrency for all.
Contenders alternate. Figures are documents a second, with the CPU of a document in the engine's process and in the
module's; the latency beside a module that is down; and memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.servers.kafka import Broker, Missing
from tests.servers.ports import free_port

from benchmarks import pipeline_cases, pipeline_redrive
from benchmarks.fresh import environment, measure, new_folder
from benchmarks.report import Ratio, Report, Row, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PARTS = ("noop", "waiting", "down", "memory")
_BARE, _PLAIN, _OURS = "bare grpc.aio client loop", "plain consume-call-produce loop", "redrive"
_RATE = 100  # documents a second to each of two nodes


def run(*, quick: bool, part: str) -> Report:
    """Measure one part, each contender in a process of its own, on a broker of our own."""
    report = Report(name=f"pipeline-{part}", quick=quick)
    try:
        with Broker() as broker:
            bench = _Bench(report, broker.bootstrap, quick=quick)
            {"noop": bench.noop, "waiting": bench.waiting, "down": bench.down, "memory": bench.memory}[part]()
    except Missing as why:
        report.notes.append(f"Nothing was measured: {why}")
    return report


class _Bench:
    def __init__(self, report: Report, bootstrap: str, *, quick: bool) -> None:
        self.report, self.bootstrap, self.quick, self.runs = report, bootstrap, quick, 1 if quick else 5
        self._names = 0

    # ------------------------------------------------------------------ speed

    def noop(self) -> None:
        """Compare with a module that does nothing, at concurrency 64."""
        count = 6_000 if self.quick else 40_000
        found = self._table("a module that does nothing, concurrency 64", 64, 0.0, count)
        self._ratio("no-op module, beside the bare client", found[_OURS] / found[_BARE], 0.65, 0.75)

    def waiting(self) -> None:
        """Compare with a module that waits 5 ms, at concurrency 16."""
        count = 4_000 if self.quick else 20_000
        found = self._table("a module that waits 5 ms, concurrency 16", 16, 0.005, count)
        self._ratio("5 ms module, beside the bare client", found[_OURS] / found[_BARE], 0.75, 0.85)
        self._ratio("5 ms module, beside the plain loop", found[_OURS] / found[_PLAIN], 10.0)

    def _table(self, title: str, concurrency: int, delay: float, documents: int) -> dict[str, float]:
        """Measure all contenders by turns with one kind of module; return their medians and, for ours, of one node."""
        contenders: list[tuple[str, str, Callable[..., Any], int, dict[str, Any]]] = [
            (_BARE, "", pipeline_cases.bare, documents, {}),
            (_OURS, "1 node", pipeline_redrive.drain, documents, {"nodes": 1}),
            (_PLAIN, "", pipeline_cases.plain, max(500, documents // 20), {}),
            (_OURS, "3 nodes", pipeline_redrive.drain, documents // 3, {"nodes": 3}),
            (_OURS, "5 nodes", pipeline_redrive.drain, documents // 5, {"nodes": 5}),
        ]
        turns = [
            [self._once(case, count, delay, concurrency=concurrency, **more) for _, _, case, count, more in contenders]
            for _ in range(self.runs)
        ]
        rows = [
            _row(name, setting, count, list(found))
            for (name, setting, _, count, _), found in zip(contenders, zip(*turns, strict=True), strict=True)
        ]
        self.report.tables.append(Table(title=title, unit="documents a second", rows=rows))
        return {row.name: row.median for row in reversed(rows)}

    # ------------------------------------------------------------------ a module that is down

    def down(self) -> None:
        """Compare the latency of a node while another node's module answers, and while it is down."""
        count = 1_000 if self.quick else 6_000
        rows = []
        turns = [[self._latency(count, is_down=each) for each in (False, True)] for _ in range(self.runs)]
        for setting, found in zip(("the other module answers", "it is down"), zip(*turns, strict=True), strict=True):
            remark = f"half of them within {found[-1]['p50_ms']:.0f} ms"
            p99 = tuple(float(each["p99_ms"]) for each in found)
            rows.append(Row(name=_OURS, setting=setting, n=count, runs=p99, ours=True, remark=remark))
        self.report.tables.append(Table(title="a healthy node beside another one", unit="ms, p99", rows=rows))
        up, gone = (row.median for row in rows)
        self._ratio("p99 of a healthy node while another module is down", gone / up, 1.5, at_least=False)

    def _latency(self, count: int, *, is_down: bool) -> Any:
        with _module(0.005) as (other, _):
            target = f"127.0.0.1:{free_port()}" if is_down else other  # nothing listens there
            return self._once(pipeline_redrive.beside, count, 0.005, rate=_RATE, other=target, is_down=is_down)

    # ------------------------------------------------------------------ memory

    def memory(self) -> None:
        """Take many documents through one node, and look at the engine's memory."""
        count = 20_000 if self.quick else 200_000
        found = self._once(pipeline_redrive.drain, count, 0.0, concurrency=64, nodes=1)
        row = Row(name=_OURS, setting="1 node", n=count, runs=(found["peak_mb"],), ours=True)
        self.report.tables.append(Table(title="memory of the engine", unit="MB at most", rows=[row]))
        if not self.quick:  # a quick run ends before the buffers are full
            self._ratio("growth for 100,000 documents", found["growth_mb"], 2.0, at_least=False, unit="MB")

    # ------------------------------------------------------------------ one case

    def _ratio(self, what: str, value: float, bar: float, aim: float | None = None, **more: Any) -> None:
        self.report.ratios.append(Ratio(what=what, value=value, bar=bar, aim=aim, **more))

    def _once(self, case: Callable[..., Any], count: int, delay: float, **more: Any) -> Any:
        self._names += 1
        with _module(delay) as (target, cpu), new_folder() as folder:
            before = cpu()
            found = measure(
                case, folder, target=target, bootstrap=self.bootstrap, documents=count,
                name=f"bench-{os.getpid()}-{self._names}", **more,
            )  # fmt: skip
            return {**found, "module_us": (cpu() - before) / (count * more.get("nodes", 1)) * 1e6}


def _row(name: str, setting: str, count: int, found: list[Any]) -> Row:
    last = found[-1]
    return Row(
        name=name, setting=setting, n=count, runs=tuple(float(each["documents_a_second"]) for each in found),
        ours=name == _OURS, rival=name != _OURS,
        remark=f"a step: {last['cpu_us']:.0f} µs of CPU in its process, {last['module_us']:.0f} µs in the module's",
    )  # fmt: skip


@contextmanager
def _module(delay: float) -> Iterator[tuple[str, Callable[[], float]]]:
    """Run a module in a process of its own; yield its address and a function that tells its CPU seconds."""
    port = free_port()
    words = [sys.executable, "-m", "benchmarks.pipeline_cases", str(port), str(delay)]
    process = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it listens
        yield f"127.0.0.1:{port}", lambda: _cpu_of(process.pid)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _cpu_of(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - no file
        parts = stat.read().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")
