"""
kill -9 of the members of a consumer group, at random moments and at failpoints.

Owns the run and its judgement from outside: the topic, the dead letters, the committed offsets
and a book of what was handled. Nothing may be missing, nothing committed past a record that is
neither handled nor dead-lettered, and the first runs of each key are in order. How often
something ran twice is counted, not judged.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Self

import msgspec
from tests.sources.kafka.stage import Stage
from tests.torture.nursery import ROOT
from tests.torture.runs.brokers.kafka_member import DEAD

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS, KEYS, MEMBERS = 4, 40, 2
PATIENCE = 180.0  # seconds without a commit, after which it is stuck


class Outcome(msgspec.Struct, kw_only=True):
    """What a run came to."""

    produced: int
    kills: int = 0
    handled: int = 0  # records
    dead: int = 0  # records in the dead-letter topic
    ran_twice: int = 0  # runs that ended well, beyond the first of their record
    dead_twice: int = 0  # dead letters, beyond the first of their record
    looks: int = 0  # how often commits were compared with what was resolved
    problems: list[str] = []


class Group:
    """Members of one group on a topic of their own; use it as a context manager."""

    def __init__(
        self, bootstrap: str, folder: Path, name: str, protocol: str = "classic", *, mortal: bool = True
    ) -> None:
        """*mortal* members are missed soon after they were killed, and when they stand still for a second."""
        self.stage = Stage(bootstrap, name)
        self.book = folder / "book"
        self.book.touch()
        self._protocol, self._mortal = protocol, "mortal" if mortal else "immortal"
        self._members: list[subprocess.Popen[bytes]] = []
        self.stage.create(partitions=PARTITIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        for member in self._members:
            member.kill()
            member.wait()
        self.stage.close()

    def start(self, failpoints: str = "") -> None:
        """Let one more member join."""
        stage = self.stage
        words = [stage.bootstrap, stage.topic, stage.group, str(self.book), self._protocol, self._mortal]
        env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "REDRIVE_FAILPOINTS": failpoints}
        self._members.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.torture.runs.brokers.kafka_member", *words], env=env, cwd=ROOT
            )
        )

    def await_first(self) -> None:
        """Wait until a member has begun: it makes the dead-letter topic, without which there is nothing to look at."""
        end = time.monotonic() + PATIENCE
        while self.stage.dlq not in self.stage.topics():
            if time.monotonic() > end:
                message = f"no member has begun within {PATIENCE} s"
                raise TimeoutError(message)
            time.sleep(0.1)

    def await_members(self, count: int) -> None:
        """Wait until the group has *count* members, as its coordinator says."""
        end = time.monotonic() + PATIENCE
        while (now := self.stage.members()) != count:
            if time.monotonic() > end:
                message = f"the group has {now} members and not {count} after {PATIENCE} s"
                raise TimeoutError(message)
            time.sleep(0.05)

    def kill(self, which: int) -> None:
        """Kill a member, which a failpoint may have done before."""
        member = self._members.pop(which)
        member.kill()
        member.wait()

    def leave(self, which: int) -> None:
        """Let a member leave as it should."""
        member = self._members.pop(which)
        member.terminate()
        member.wait(PATIENCE)

    def committed(self) -> dict[int, int]:
        """Return how far each partition is committed."""
        return {number: self.stage.committed(number) or 0 for number in range(PARTITIONS)}

    def produce(self, first: int, last: int) -> None:
        """Produce the numbers from *first* up to *last*; a key is always in the same order."""
        self.stage.produce([{"value": b"%d" % n, "key": b"k%d" % (n % KEYS)} for n in range(first, last)])

    def finish(self, produced: int) -> bool:
        """Wait until everything is committed; False if it is stuck."""
        before, end = -1, time.monotonic() + PATIENCE
        while (now := sum(self.committed().values())) < produced:
            if now > before:
                before, end = now, time.monotonic() + PATIENCE
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True


def at_random(bootstrap: str, folder: Path, produced: int, kills: int, seed: int) -> Outcome:
    """Produce in *kills* slices, and kill a member after each."""
    rng, points = random.Random(seed), named_points()
    outcome = Outcome(produced=produced, problems=[])
    with Group(bootstrap, folder, f"kills-{seed}") as group:
        for _ in range(MEMBERS):
            group.start()
        group.await_first()
        for cycle in range(kills):
            group.produce(produced * cycle // kills, produced * (cycle + 1) // kills)
            time.sleep(rng.uniform(0.3, 1.5))
            group.kill(rng.randrange(MEMBERS))
            outcome.kills += 1
            group.start(f"{rng.choice(points)}=kill@{rng.randint(1, 20)}" if rng.random() < 1 / 3 else "")
            if cycle % 4 == 0:
                _look(group, outcome)
        for _ in range(MEMBERS):  # who carries a failpoint may die of it at any time
            group.start()
        judge(group, outcome)
    return outcome


def judge(group: Group, outcome: Outcome) -> None:
    """Let the group finish, and see what became of every record."""
    if not group.finish(outcome.produced):
        outcome.problems.append(f"stuck at {group.committed()} of {outcome.produced}")
    _look(group, outcome)
    lines = [line.split() for line in group.book.read_bytes().splitlines()]
    handled = Counter(int(number) for *_, number in lines)
    dead = Counter(int(letter.value()) for letter in group.stage.dead_letters())
    outcome.handled, outcome.dead = len(handled), len(dead)
    outcome.ran_twice, outcome.dead_twice = handled.total() - len(handled), dead.total() - len(dead)
    everything = set(range(outcome.produced))
    _blame(outcome, "neither handled nor dead-lettered", everything - set(handled) - set(dead))
    _blame(outcome, "dead-lettered for nothing", {n for n in dead if n % 10 != DEAD})
    _blame(outcome, "out of order", _disordered(lines))


def _look(group: Group, outcome: Outcome) -> None:
    """Compare what is committed with what was resolved by then: read later, it can only be more."""
    committed = group.committed()
    handled = {(int(line.split()[0]), int(line.split()[1])) for line in group.book.read_bytes().splitlines()}
    headers = [dict(letter.headers()) for letter in group.stage.dead_letters()]
    resolved = handled | {(int(each["partition"]), int(each["offset"])) for each in headers}
    outcome.looks += 1
    past = {(part, n) for part, end in committed.items() for n in range(end)} - resolved
    _blame(outcome, "committed past", past)


def _disordered(lines: list[list[bytes]]) -> set[bytes]:
    """Return the keys whose first runs were not in the order of their records."""
    runs: dict[bytes, dict[int, None]] = {}
    for _, _, key, number in lines:
        runs.setdefault(key, {}).setdefault(int(number))
    return {key for key, first in runs.items() if list(first) != sorted(first)}


def _blame(outcome: Outcome, what: str, found: set[object] | set[int] | set[bytes] | set[tuple[int, int]]) -> None:
    if found:
        outcome.problems.append(f"{what}: {len(found)}, such as {sorted(found, key=repr)[:5]}")


def named_points() -> list[str]:
    """Return every failpoint that a member passes between poll and commit."""
    room = ROOT / "src" / "redrive" / "sources" / "kafka"
    names = ("control/poller.py", "dead_letters/publisher.py", "control/commits.py")
    texts = [(room / name).read_text() for name in names]
    return sorted({name for text in texts for name in re.findall(r'\bhit\("([^"]+)"\)', text)})
