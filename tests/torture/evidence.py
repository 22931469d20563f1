"""
What a long run leaves behind.

Owns the evidence file: seed, commit, versions, counts and durations, rewritten after every
leg, so that a run that was interrupted goes on where it stopped. Knows no fault.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import apsw
import msgspec
from tests.servers import kafka_files, postgres
from tests.torture.nursery import ROOT

FOLDER = Path(__file__).parent / "evidence"
_RESULTS = (":(exclude)tests/torture/evidence", ":(exclude)benchmarks/results", ":(exclude)benchmarks/README.md")


class Evidence(msgspec.Struct, kw_only=True):
    """One run, so far."""

    name: str
    seed: int
    target: int  # cycles in all
    done: int = 0  # cycles so far
    legs: int = 0
    counts: dict[str, int] = {}
    worst: dict[str, float] = {}
    seconds: float = 0.0
    problems: list[str] = []
    commits: list[str] = []
    versions: dict[str, str] = {}
    machine: str = ""
    began: str = ""
    ended: str = ""

    def add(self, counts: dict[str, int], *, cycles: int, seconds: float, problems: list[str], **worst: float) -> None:
        """Add a leg."""
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        for name, value in worst.items():
            self.worst[name] = max(value, self.worst.get(name, 0.0))
        self.done += cycles
        self.legs += 1
        self.seconds = round(self.seconds + seconds, 1)
        self.problems += problems

    def save(self, path: Path) -> None:
        """Write the file as a whole, or not at all."""
        self.ended = _now()
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
        fresh.replace(path)


def begin(name: str, seed: int, target: int, path: Path, *, resume: bool) -> Evidence:
    """Return the evidence to go on with, or a new one."""
    if resume and path.exists():
        found = msgspec.json.decode(path.read_bytes(), type=Evidence)
        if (found.name, found.seed) == (name, seed):
            found.target = target
            found.commits = list(dict.fromkeys([*found.commits, _commit()]))
            return found
        print(f"{path} is of another run ({found.name}, seed {found.seed}); beginning anew", file=sys.stderr)
    return Evidence(
        name=name,
        seed=seed,
        target=target,
        commits=[_commit()],
        versions=_versions(name),
        machine=_machine(),
        began=_now(),
    )


def _commit() -> str:
    """Return the commit, marked if the code differs from it; results of runs, which stand beside it, are no code."""
    described = _git("describe", "--always")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *_RESULTS)
    return f"{described}-dirty" if changed else described or "unknown"


def _git(*words: str) -> str:
    found = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    return found.stdout.decode().strip()


def _versions(name: str) -> dict[str, str]:
    if name.startswith(("kafka-", "pipeline-")):
        clients = ("confluent-kafka", "grpcio") if name.startswith("pipeline-") else ("confluent-kafka",)
        return {
            "python": platform.python_version(),
            **{each: version(each) for each in clients},
            "kafka": kafka_files.VERSION,
        }
    if not name.startswith("pg-"):
        return {"python": platform.python_version(), "apsw": apsw.apsw_version(), "sqlite": apsw.sqlite_lib_version()}
    asked = subprocess.run([postgres.binaries(18) / "postgres", "--version"], capture_output=True, check=True)
    return {
        "python": platform.python_version(), "asyncpg": version("asyncpg"), "postgresql": asked.stdout.decode().strip()
    }  # fmt: skip


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
