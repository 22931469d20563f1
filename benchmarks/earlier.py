"""
`python -m benchmarks.earlier REV`: this code and an earlier commit, by turns.

Owns the checkout of the earlier commit, the four cases that must not become slower, and the ratio of their medians.
Each checkout runs its own benchmark code on its own sources, in a new process per case and turn; the servers are
shared. The order of the two changes with each turn, so that neither always runs on the colder machine.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.servers.kafka import Broker

from benchmarks import kafka_redrive, kafka_topics, postgres_drain, sqlite_redrive
from benchmarks import postgres_server as server
from benchmarks.fresh import ROOT, base_folder, measure, new_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BAR = 0.95
_LETTERS = 50_000
_RECORDS = 100_000
_NAMES = ("sqlite enqueue", "sqlite drain", "postgres drain", "kafka no-op")


@dataclass(slots=True)
class Figures:
    """Letters per second of one case, by checkout."""

    earlier: list[float] = field(default_factory=list)
    now: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """How fast this code is beside the earlier one."""
        return statistics.median(self.now) / statistics.median(self.earlier)


def main() -> int:
    """Measure what was asked for and print a line per case; 1 if one is below the bar."""
    arguments = _arguments()
    with checkout(arguments.rev) as earlier, _cases(arguments.cases) as cases:
        found = {name: _by_turns(case, earlier, arguments.turns) for name, case in cases.items()}
    for name, figures in found.items():
        print(_line(name, figures))
    return int(any(figures.ratio < BAR for figures in found.values()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.earlier", description=__doc__)
    parser.add_argument("rev", help="the earlier commit")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--cases", nargs="+", choices=_NAMES, default=list(_NAMES))
    return parser.parse_args()


@contextlib.contextmanager
def checkout(rev: str) -> Iterator[Path]:
    """Give a folder with the files of *rev*, and remove it afterwards."""
    folder = base_folder() / f"earlier-{uuid.uuid4().hex[:8]}"
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(folder), rev], cwd=ROOT, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(folder)], cwd=ROOT, check=True)


def _by_turns(case: Callable[[Path], float], earlier: Path, turns: int) -> Figures:
    figures = Figures()
    for turn in range(turns):
        both = [(earlier, figures.earlier), (ROOT, figures.now)]
        for root, rates in both if turn % 2 else reversed(both):
            rates.append(case(root))
    return figures


def _line(name: str, figures: Figures) -> str:
    earlier, now = statistics.median(figures.earlier), statistics.median(figures.now)
    verdict = "" if figures.ratio >= BAR else f"  below {BAR}"
    return f"{name:16} earlier {earlier:>9,.0f}/s  now {now:>9,.0f}/s  ratio {figures.ratio:.3f}{verdict}"


# ---------------------------------------------------------------------- the cases


@contextlib.contextmanager
def _cases(names: list[str]) -> Iterator[dict[str, Callable[[Path], float]]]:
    """Give a function per case that runs it once in a checkout; start the servers that they need."""
    with contextlib.ExitStack() as stack:
        found: dict[str, Callable[[Path], float]] = {"sqlite enqueue": _sqlite_enqueue, "sqlite drain": _sqlite_drain}
        if "postgres drain" in names:
            found["postgres drain"] = _postgres_drain(stack.enter_context(server.serving()))
        if "kafka no-op" in names:
            found["kafka no-op"] = _kafka_no_op(stack.enter_context(Broker()).bootstrap)
        yield {name: found[name] for name in names}


def _rate(answer: dict[str, Any]) -> float:
    return float(answer["n"]) / float(answer["seconds"])


def _sqlite_enqueue(root: Path) -> float:
    with new_folder() as folder:
        return _rate(measure(sqlite_redrive.enqueue, folder, root=root, n=_LETTERS, producers=100))


def _sqlite_drain(root: Path) -> float:
    with new_folder() as folder:
        measure(sqlite_redrive.fill, folder, root=root, n=_LETTERS)
        return _rate(measure(sqlite_redrive.drain, folder, root=root, n=_LETTERS, engine="async"))


def _postgres_drain(url: str) -> Callable[[Path], float]:
    def drain(root: Path) -> float:
        name = f"turn_{uuid.uuid4().hex[:8]}"
        database = server.new_database(url, name)
        try:
            with new_folder() as folder:
                arguments = {"url": database, "contender": "redrive", "n": _LETTERS, "processes": 1, "settings": {}}
                return _rate(measure(postgres_drain.fill_and_drain, folder, root=root, **arguments))
        finally:
            server.drop_database(url, name)

    return drain


def _kafka_no_op(bootstrap: str) -> Callable[[Path], float]:
    topic = kafka_topics.filled(bootstrap, "turns", _RECORDS)

    def consume(root: Path) -> float:
        with new_folder() as folder:
            arguments = {"bootstrap": bootstrap, "topic": topic, "n": _RECORDS, "ordering": "key_hash"}
            return _rate(measure(kafka_redrive.consume, folder, root=root, **arguments))

    return consume


if __name__ == "__main__":
    sys.exit(main())
