"""
What was seen to happen, written outside the system under test.

Owns the logs: one file a process, opened with O_APPEND, one write a line, so that a
process that is killed leaves every line it finished. Knows no rule: `checker` judges.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

_numbers = count()


class Log:
    """One process's part of the history."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{os.getpid()}-{next(_numbers)}-{os.urandom(3).hex()}.log"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, *lines: tuple[object, ...]) -> None:
        """Append *lines* with one write; words must not contain white space."""
        os.write(self._file, "".join(" ".join(map(str, line)) + "\n" for line in lines).encode())

    def close(self) -> None:
        os.close(self._file)


class Settled(NamedTuple):
    """A settlement that the store accepted."""

    token: int
    to: str
    why: str


class History:
    """All logs of a folder, by letter."""

    def __init__(self, folder: Path) -> None:
        self.offered: set[str] = set()
        self.accepted: set[str] = set()
        self.purged: set[str] = set()
        self.starts: defaultdict[str, list[int]] = defaultdict(list)
        self.effects: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.claims: defaultdict[str, list[int]] = defaultdict(list)
        self.settled: defaultdict[str, list[Settled]] = defaultdict(list)
        self.refused = 0
        self.replayed: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        for path in sorted(folder.glob("*.log")):
            for line in path.read_text().split("\n")[:-1]:  # what a kill has torn has no end of line
                event, *words = line.split(" ")
                getattr(self, f"_{event}")(*words)

    def _offered(self, letter: str) -> None:
        self.offered.add(letter)

    def _accepted(self, letter: str) -> None:
        self.accepted.add(letter)

    def _purged(self, letter: str) -> None:
        self.purged.add(letter)

    def _run_start(self, letter: str, token: str) -> None:
        self.starts[letter].append(int(token))

    def _effect(self, letter: str) -> None:
        self.effects[letter] += 1

    def _run_end(self, letter: str, outcome: str) -> None:
        self.ends[outcome] += 1

    def _claimed(self, letter: str, token: str) -> None:
        self.claims[letter].append(int(token))

    def _settled(self, letter: str, token: str, to: str, why: str) -> None:
        self.settled[letter].append(Settled(int(token), to, why))

    def _refused(self, _letter: str, _token: str) -> None:
        self.refused += 1

    def _replayed(self, letter: str) -> None:
        self.replayed[letter] += 1

    def _error(self, name: str) -> None:
        self.errors[name] += 1
