"""
Power cuts.

Owns a scenario that drives the real store through every kind of write, and the check of
what a cut leaves: whatever a caller was told is there, the file is sound, the books
balance. One run is cut at many points: the recorder knows what the disk held at each.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import msgspec
from tests.torture import checker, looks
from tests.torture.recorder import Disk, Recorder
from tests.torture.runs import mutants

from redrive.core.letter import Category, Draft, Failure, Status
from redrive.core.moves import Move
from redrive.core.plan import Plan
from redrive.stores.contract import QueueSpec, Want, WorkerBeat
from redrive.stores.sqlite import SqliteStore
from redrive.stores.sqlite.file import writer

if TYPE_CHECKING:
    from tests.torture.recorder import Op

CUTS_PER_RUN = 1_000
ROUNDS = 40
WANTS = [Want("work", ("a", "b"), 6), Want("lane", ("a",), 3)]
DELIVERED = Move(Status.DELIVERED, "succeeded")
_RECHECKED = 0.01  # of the images are opened and worked on by the store itself


class Report(msgspec.Struct, kw_only=True):
    """What a number of cuts came to."""

    seed: int
    cuts: int = 0
    answers: int = 0  # acknowledgements that had to hold, over all cuts
    reopened: int = 0
    seconds: float = 0.0
    problems: list[str] = []


# ---------------------------------------------------------------------- the scenario


class Scenario:
    """Random calls of the store; what it answers is noted in the recorder."""

    def __init__(self, store: SqliteStore, recorder: Recorder, rng: random.Random) -> None:
        self.store, self.recorder, self.rng = store, recorder, rng
        self.claims: list[Any] = []
        self.dead: list[str] = []
        self.archived: list[str] = []
        self._count = 0

    async def run(self, rounds: int) -> None:
        await self.store.declare([QueueSpec(name="lane", ordered=True)])
        acts = [self.put, self.put, self.crowd, self.claim, self.settle, self.settle, self.exchange]
        acts += [self.extend, self.replay, self.plan, self.archive, self.purge]
        for _ in range(rounds):
            await self.rng.choice(acts)()

    def _draft(self) -> Draft:
        self._count += 1
        lane = self.rng.random() < 0.3
        return Draft(
            id=f"letter-{self._count}",
            queue="lane" if lane else "work",
            kind=self.rng.choice("ab") if not lane else "a",
            payload=b"x" * self.rng.choice((20, 220, 5_000)),
            key=self.rng.choice(("k1", "k2")) if lane else None,
            after=(self.claims[0].letter.id,) if self.claims and self.rng.random() < 0.05 else (),
        )

    async def put(self) -> None:
        receipts = await self.store.put([self._draft() for _ in range(self.rng.randrange(1, 5))])
        self.recorder.answered({receipt.id: 1 for receipt in receipts})

    async def crowd(self) -> None:
        """Several callers at once: group commit."""
        await asyncio.gather(*(self.put() for _ in range(4)))

    def _took(self, claims: list[Any]) -> None:
        self.claims += claims
        self.recorder.answered({claim.letter.id: claim.token for claim in claims})

    async def claim(self) -> None:
        self._took(await self.store.claim(WANTS, lease=60, worker="w"))

    def _move(self) -> Move:
        fate = self.rng.random()
        if fate < 0.5:
            return DELIVERED
        failure = Failure(
            error_type=self.rng.choice(("ValueError", "OSError")),
            message=f"boom {self.rng.random()}",
            category=Category.TRANSIENT,
            rule="the default",
            fingerprint=self.rng.choice(("f1", "f2")),
        )
        if fate < 0.75:
            return Move(Status.FAILED, "exhausted", failure=failure, policy="p")
        if fate < 0.9:
            return Move(Status.PENDING, "backing off", failure=failure, policy="p")
        return Move(Status.PENDING, "released", counts=False)

    def _settlements(self) -> list[tuple[Any, Move]]:
        some = [self.claims.pop(0) for _ in range(min(len(self.claims), self.rng.randrange(1, 6)))]
        return [(claim, self._move()) for claim in some]

    def _settled(self, settlements: list[tuple[Any, Move]], accepted: tuple[bool, ...]) -> None:
        held = [pair for pair, yes in zip(settlements, accepted, strict=True) if yes]
        self.dead += [claim.letter.id for claim, move in held if move.to is Status.FAILED]
        self.recorder.answered({claim.letter.id: claim.token + 1 for claim, _ in held})

    async def settle(self) -> None:
        settlements = self._settlements()
        if settlements:
            self._settled(settlements, await self.store.settle(settlements))

    async def exchange(self) -> None:
        settlements = self._settlements()
        exchanged = await self.store.exchange(settlements, WANTS, lease=60, worker="w")
        self._settled(settlements, exchanged.accepted)
        self._took(exchanged.claims)

    async def extend(self) -> None:
        await self.store.extend(WorkerBeat(name="w", kinds=("a", "b")), self.claims, lease=60)

    async def _act(self, verb: str, ids: list[str]) -> list[str]:
        if verb == "purge":
            self.recorder.answered(dict.fromkeys(ids, 0))  # from now on it may be gone
        letters = await self.store.act(verb, ids, by="ada", reason="test")
        told = {letter.id: letter.token for letter in letters}
        self.recorder.answered(dict.fromkeys(told, -1) if verb == "purge" else told)
        return list(told)

    async def replay(self) -> None:
        if self.dead:
            await self._act("replay", [self.dead.pop(0)])

    async def archive(self) -> None:
        if self.dead:
            self.archived += await self._act("archive", [self.dead.pop()])

    async def purge(self) -> None:
        if self.archived and not await self.store.dependents(self.archived[-1:]):  # what others wait for is kept
            await self._act("purge", [self.archived.pop()])

    async def plan(self) -> None:
        self._count += 1
        query = "status:failed"
        plan = Plan(id=f"plan-{self._count}", verb="replay", query=query, by="ada", reason="")
        await self.store.start_plan(plan)
        step = await self.store.step(plan.id, limit=2)
        self.dead = [letter_id for letter_id in self.dead if letter_id not in step.acted]


async def record(folder: Path, seed: int, rounds: int = ROUNDS) -> list[Op]:
    """Run the scenario of *seed* and return what was asked of the disk, opening and closing included."""
    recorder = Recorder()
    store = SqliteStore(folder / "redrive.db", vfs=recorder.name)
    await store.open()
    await Scenario(store, recorder, random.Random(seed)).run(rounds)
    await store.close()
    return recorder.ops


# ---------------------------------------------------------------------- the cuts


def cut_run(seed: int, cuts: int, *, mutant: str = "") -> Report:
    """Record one run and cut it *cuts* times; stops at the first few problems."""
    mutants.apply(mutant)
    writer.CHECKPOINT_PAGES = 30  # so that checkpoints are cut too
    began, rng, report = time.monotonic(), random.Random(seed), Report(seed=seed)
    memory = Path("/dev/shm")  # noqa: S108 - our own folder in it; the cuts are modelled, a real disk only slows them
    folder = Path(tempfile.mkdtemp(prefix="redrive-cut-", dir=memory if memory.is_dir() else None))
    try:
        (folder / "run").mkdir()
        ops = asyncio.run(record(folder / "run", seed))
        _cut_all(folder, ops, rng, cuts, report)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.seconds = time.monotonic() - began
    return report


def _cut_all(folder: Path, ops: list[Op], rng: random.Random, cuts: int, report: Report) -> None:
    points = sorted(rng.choices(range(len(ops) + 1), k=cuts))
    disk, told, taken = Disk(), {}, 0
    for point in points:
        for op in ops[taken:point]:
            disk.take(op)
            if op.what == "answer":
                _fold(told, op.answer)
        taken = point
        report.cuts += 1
        report.answers += len(told)
        problems = _check(folder, disk.cut(rng), told)
        if not problems and rng.random() < _RECHECKED:
            problems = asyncio.run(_work_on(folder / "image" / "redrive.db"))
            report.reopened += 1
        report.problems += [f"cut at request {point} of {len(ops)}: {problem}" for problem in problems]
        if len(report.problems) > 5:
            return


def _fold(told: dict[str, int], answer: dict[str, int]) -> None:
    """Tokens only grow; 0 means it may be gone, -1 that it must be."""
    for letter_id, token in answer.items():
        told[letter_id] = token if token <= 0 else max(token, told.get(letter_id, 1))


def _check(folder: Path, files: dict[str, bytearray], told: dict[str, int]) -> list[str]:
    image = folder / "image"
    shutil.rmtree(image, ignore_errors=True)
    image.mkdir()
    for name, data in files.items():
        if name != "redrive.db-shm":
            (image / name).write_bytes(data)
    try:
        with closing(apsw.Connection(str(image / "redrive.db"))) as connection:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            return _check_image(connection, told)
    except apsw.Error as error:
        return [f"{type(error).__name__}: {error}"]


def _check_image(connection: apsw.Connection, told: dict[str, int]) -> list[str]:
    if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'letters'").get:
        return [f"{len(told)} acknowledged letters are gone with their table"] if told else []
    rows = dict(connection.execute("SELECT id, token FROM letters"))
    problems = [
        f"{letter_id} was answered for @{token} and is {'@' + str(rows[letter_id]) if letter_id in rows else 'gone'}"
        for letter_id, token in told.items()
        if (token > 0 and rows.get(letter_id, -1) < token) or (token < 0 and letter_id in rows)
    ]
    look = looks.SqliteLook(connection)
    return problems[:3] + checker.sample(look) + look.damage()


async def _work_on(path: Path) -> list[str]:
    """Let the store itself open what the cut left, and go on."""
    store = SqliteStore(path)
    try:
        await store.open()
        await store.put([Draft(id="afterwards", queue="work", kind="a", payload=b"{}")])
        claims = await store.claim([Want("work", ("a", "b"), 1_000)], lease=60, worker="next")
        accepted = await store.settle([(claim, DELIVERED) for claim in claims])
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        return [f"the store cannot go on: {error!r}"]
    finally:
        await store.close()
    problems = checker.books_problems(path)
    return problems if accepted and all(accepted) else [*problems, "a claim made after the cut was refused"]


def batch(first_seed: int, runs: int, cuts: int, result: str) -> None:
    """In a process of its own: cut *runs* runs and write the reports to the file *result*."""
    reports = [cut_run(seed, cuts) for seed in range(first_seed, first_seed + runs)]
    Path(result).write_text(json.dumps([msgspec.to_builtins(report) for report in reports]))
