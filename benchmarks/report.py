"""
What a benchmark found, and how it is shown.

Owns tables, ratios, the stamp of the surroundings, and the four places a report goes to: the
terminal, `results/NAME.json`, a plot, and the figures in the README, which nobody types.
Only full runs are quoted: a quick one goes to files of its own and leaves the README alone.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from benchmarks.fresh import ROOT, base_folder, filesystem

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
README = HERE / "README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One contender in one table: a figure per run."""

    name: str
    setting: str
    n: int
    runs: tuple[float, ...]
    ours: bool = False
    rival: bool = False  # a peer that does the same on the same terms: ratios are taken beside these
    durable: str = ""  # SQLite: the `synchronous` it really ran with
    remark: str = ""

    @property
    def median(self) -> float:
        """The figure that is quoted."""
        return statistics.median(self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Contenders that answer one question in one unit."""

    title: str
    unit: str
    rows: list[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Two figures of one run, or one figure, beside the bar that it must reach."""

    what: str
    value: float
    bar: float
    at_least: bool = True
    aim: float | None = None
    unit: str = "×"

    @property
    def met(self) -> bool:
        """Whether it is on the right side of the bar."""
        return self.value >= self.bar if self.at_least else self.value <= self.bar


@dataclass(slots=True, kw_only=True)
class Report:
    """Everything that one benchmark found."""

    name: str
    quick: bool
    tables: list[Table] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def publish(report: Report) -> None:
    """Show *report* and write it where it belongs."""
    stamp = surroundings()
    print(f"\n{_markdown(report, stamp)}")
    RESULTS.mkdir(exist_ok=True)
    stem = f"{report.name}.quick" if report.quick else report.name
    target = RESULTS / f"{stem}.json"
    target.write_text(json.dumps(_as_data(report, stamp), indent=1, ensure_ascii=False) + "\n")
    print(f"\nwritten: {target.relative_to(ROOT)}")
    _plot(report, RESULTS / f"{stem}.svg")
    if not report.quick:
        _quote(report, stamp)
    for ratio in report.ratios:
        if not ratio.met:
            print(f"missed: {ratio.what}: {number(ratio.value)} {ratio.unit}")


# ---------------------------------------------------------------------- surroundings

_LIBRARIES = (
    "apsw", "huey", "litequeue", "persist-queue", "honker", "asyncpg", "pgqueuer", "procrastinate", "psycopg", "uvloop",
    "confluent-kafka", "pyrallel-consumer", "faststream", "tenacity", "stamina",
)  # fmt: skip


def surroundings() -> dict[str, str]:
    """Say what the figures depend on."""
    versions = [f"{name} {found}" for name in _LIBRARIES if (found := _version(name))]
    return {
        "at": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "redrive": f"{_version('redrive') or 'source'} ({_commit()})",
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "cpu": f"{os.cpu_count()} × {_cpu()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, {filesystem(base_folder())}",
        "load": f"{os.getloadavg()[0]:.1f}",
        "libraries": ", ".join(versions),
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "no commit"


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


# ---------------------------------------------------------------------- as text


def _markdown(report: Report, stamp: dict[str, str]) -> str:
    form = "Quick form: one run, small sizes; not to be quoted." if report.quick else "Full form."
    parts = [form + " " + "; ".join(f"{name}: {value}" for name, value in stamp.items() if value) + "."]
    parts += [_table(table) for table in report.tables]
    if report.ratios:
        parts.append(_ratios(report.ratios))
    if report.notes:
        parts.append("\n".join(f"- {note}" for note in report.notes))
    return "\n\n".join(parts)


def _table(table: Table) -> str:
    lines = [["contender", "setting", "durability", "count", "runs", table.unit]]
    for row in table.rows:
        name = f"**{row.name}**" if row.ours else row.name
        setting = f"{row.setting}; {row.remark}" if row.remark else row.setting
        lines.append([name, setting, row.durable, f"{row.n:,}", str(len(row.runs)), _figure(row)])
    return f"#### {table.title}\n\n{_aligned(_without_empty(lines))}"


def _figure(row: Row) -> str:
    spread = f" ({number(min(row.runs))} to {number(max(row.runs))})" if len(row.runs) > 1 else ""
    return f"{number(row.median)}{spread}"


def _ratios(ratios: Sequence[Ratio]) -> str:
    lines = [["measured", "found", "bar", ""]]
    for ratio in ratios:
        sign = "≥" if ratio.at_least else "≤"
        aim = f" (aim {number(ratio.aim)})" if ratio.aim is not None else ""
        bar = f"{sign} {number(ratio.bar)} {ratio.unit}{aim}"
        lines.append([ratio.what, f"{number(ratio.value)} {ratio.unit}", bar, "met" if ratio.met else "**missed**"])
    return f"#### Beside the bars\n\n{_aligned(lines)}"


def number(value: float) -> str:
    """Return *value* with three digits that mean something, or all of a large one."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _without_empty(lines: list[list[str]]) -> list[list[str]]:
    kept = [i for i in range(len(lines[0])) if any(line[i] for line in lines[1:])]
    return [[line[i] for i in kept] for line in lines]


def _aligned(lines: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    head, *body = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    return "\n".join([head, "|" + "|".join("-" * (width + 2) for width in widths) + "|", *body])


# ---------------------------------------------------------------------- as data, plot and quotation


def _as_data(report: Report, stamp: dict[str, str]) -> dict[str, object]:
    tables = [
        {"title": table.title, "unit": table.unit, "rows": [{"median": r.median, **asdict(r)} for r in table.rows]}
        for table in report.tables
    ]
    ratios = [{**asdict(ratio), "met": ratio.met} for ratio in report.ratios]
    form = "quick" if report.quick else "full"
    return {
        "name": report.name,
        "form": form,
        "surroundings": stamp,
        "ratios": ratios,
        "tables": tables,
        "notes": report.notes,
    }


def _plot(report: Report, target: Path) -> None:
    try:
        import matplotlib as mpl  # noqa: PLC0415 - the figures do not need it
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = report.name  # the same figures give the same file
    from matplotlib import pyplot as plt  # noqa: PLC0415

    heights = [len(table.rows) + 2 for table in report.tables]
    figure, axes = plt.subplots(
        len(heights), figsize=(11, 0.32 * sum(heights)), height_ratios=heights, squeeze=False, layout="constrained"
    )
    for axis, table in zip(axes[:, 0], report.tables, strict=True):
        labels = [f"{row.name}, {row.setting}"[:70] for row in table.rows]
        colours = ["#c2410c" if row.ours else "#94a3b8" for row in table.rows]
        bars = axis.barh(range(len(labels)), [row.median for row in table.rows], color=colours)
        axis.bar_label(bars, [number(row.median) for row in table.rows], padding=3, fontsize=8)
        axis.set_yticks(range(len(labels)), labels, fontsize=8)
        axis.invert_yaxis()
        axis.margins(x=0.12)
        axis.set_title(f"{table.title} ({table.unit})", fontsize=10, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(target, metadata={"Date": None})
    print(f"written: {target.relative_to(ROOT)}")


def _quote(report: Report, stamp: dict[str, str]) -> None:
    """Put the figures between their markers in the README."""
    start, end = f"<!-- figures: {report.name} -->", f"<!-- end of figures: {report.name} -->"
    text = README.read_text()
    before, found, rest = text.partition(start)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        print(f"not written: {README.relative_to(ROOT)} has no markers {start} … {end}")
        return
    plot = f"![plot](results/{report.name}.svg)"
    README.write_text(f"{before}{start}\n\n{_markdown(report, stamp)}\n\n{plot}\n\n{end}{after}")
    print(f"written: {README.relative_to(ROOT)}")
