"""
What the processes under torture do.

Owns an application with handlers of every temper, a producer, an operator, and a store
that writes into the history what it answered. Knows no fault: those come from outside,
or through failpoints that are armed here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import time
from pathlib import Path
from typing import Any

import structlog
from tests.torture import looks
from tests.torture.history import Log
from tests.torture.runs import libraries, mutants, sweeps
from tests.torture.runs.sweeps import Metronome

from redrive import Reject, RetryPolicy, failpoints
from redrive.app import Redrive
from redrive.core.letter import Letter  # noqa: TC001 - handlers' annotations are read at run time
from redrive.errors import StoreError
from redrive.stores.contract import Store  # noqa: TC001 - beside the letter
from redrive.stores.sqlite import SqliteStore
from redrive.stores.sqlite.file import writer
from redrive.wiring import open_store

QUICK = RetryPolicy.exponential(first=0.02, cap=0.1, max_attempts=4)
KINDS = ("ok", "ok", "ok", "slow", "flaky", "bad", "threaded")


class Watching:
    """A store's other half: writes down what it answered."""

    log: Log
    metronome: Metronome | None = None

    async def put(self, drafts):
        self.log.write(*[("offered", draft.id) for draft in drafts])
        receipts = await super().put(drafts)
        self.log.write(*[("accepted", receipt.id) for receipt in receipts if not receipt.duplicate])
        return receipts

    async def claim(self, wants, *, lease, worker):
        claims = await super().claim(wants, lease=lease, worker=worker)
        self._note_claims(claims)
        return claims

    async def settle(self, settlements):
        accepted = await super().settle(settlements)
        self._note_settled(settlements, accepted)
        return accepted

    async def exchange(self, settlements, wants, *, lease, worker):
        exchanged = await super().exchange(settlements, wants, lease=lease, worker=worker)
        if self.metronome is not None:
            self.metronome.answers += 1
        self._note_settled(settlements, exchanged.accepted)
        self._note_claims(exchanged.claims)
        return exchanged

    async def step(self, plan_id, **asked):
        step = await super().step(plan_id, **asked)
        if step.plan.verb == "replay" and step.acted:
            self.log.write(*[("replayed", letter) for letter in step.acted])
        return step

    def _note_claims(self, claims) -> None:
        if claims:
            self.log.write(*[("claimed", claim.letter.id, claim.token) for claim in claims])

    def _note_settled(self, settlements, accepted) -> None:
        lines = [
            ("settled", claim.letter.id, claim.token, move.to.value, move.why.replace(" ", "_"))
            if yes
            else ("refused", claim.letter.id, claim.token)
            for (claim, move), yes in zip(settlements, accepted, strict=True)
        ]
        if lines:
            self.log.write(*lines)


def watched(place: str | Path, log: Log) -> Store:
    """Return the store of the file, or of the PostgreSQL URL, that writes what it answers into *log*."""
    store = open_store(place) if isinstance(place, str) else SqliteStore(place)
    store.__class__ = type("Watched", (Watching, type(store)), {})
    store.log = log  # type: ignore[attr-defined]
    return store


def build(
    folder: str | Path,
    *,
    url: str = "",
    lease: float = 1.0,
    sweep: float = 0.1,
    history: Path | None = None,
    holding: bool = False,
    **settings: Any,
) -> tuple[Redrive, Log]:
    """
    Return an application on *url*, or the file of *folder*, whose handlers write the history.

    With *holding*, letters of the kind `hang` never end here: others find them when this process is killed.
    """
    log = Log(history or Path(folder) / "history")
    store = watched(url or Path(folder) / "redrive.db", log)
    app = Redrive(store=store, lease_seconds=lease, sweep_seconds=sweep, poll_seconds=0.1, **settings)

    async def ok(letter: Letter) -> None:
        log.write(("run_start", letter.id, letter.token), ("effect", letter.id), ("run_end", letter.id, "ok"))

    async def slow(letter: Letter) -> None:
        log.write(("run_start", letter.id, letter.token))
        await asyncio.sleep(float(letter.metadata.get("seconds", 0.03)))
        log.write(("effect", letter.id), ("run_end", letter.id, "ok"))

    async def hang(letter: Letter) -> None:
        log.write(("run_start", letter.id, letter.token))
        if holding:
            await _hold(app, letter)
        log.write(("effect", letter.id), ("run_end", letter.id, "ok"))

    async def flaky(letter: Letter) -> None:
        log.write(("run_start", letter.id, letter.token))
        if letter.attempts == 1:
            raise ConnectionError("not yet")
        log.write(("effect", letter.id), ("run_end", letter.id, "ok"))

    async def bad(letter: Letter) -> None:
        log.write(("run_start", letter.id, letter.token))
        raise Reject("never")

    def threaded(letter: Letter) -> None:
        log.write(("run_start", letter.id, letter.token), ("effect", letter.id), ("run_end", letter.id, "ok"))

    for function in (ok, slow, hang, flaky, bad, threaded):
        app.add_handler(function.__name__, function, policy=QUICK)
    return app, log


async def _hold(app: Redrive, letter: Letter) -> None:
    """Wait for ever; for one that a stall took from us put another, because the harness looks for one never lost."""
    if letter.losses:
        await app.enqueue("hang", {})
    else:
        await asyncio.Event().wait()


def quiet() -> None:
    """Keep the log lines of hundreds of dying workers off the terminal."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


# ---------------------------------------------------------------------- entry points, one a process


def work(
    folder: str,
    *,
    seed: int = 0,
    armed: str = "",
    produce: int = 0,
    hanging: int = 0,
    napping: int = 0,
    until_idle: bool = False,
    mutant: str = "",
    looking: bool = False,
    **settings: Any,
) -> None:
    """
    Put *produce* letters while working; with *until_idle* end when nothing is left.

    Before that, put *hanging* letters, which end in any worker but this one, and *napping* ones, which
    take longer than a moment. With *looking*, look at the file with another SQLite library all the time.
    """
    failpoints.ACTIVE.update(failpoints.parse(armed))
    mutants.apply(mutant)
    writer.CHECKPOINT_PAGES = 40  # so that checkpoints are under fire too
    quiet()
    first = (hanging, napping)
    asyncio.run(_work(folder, random.Random(seed), produce, first, until_idle=until_idle, looking=looking, **settings))


async def _work(
    folder: str,
    rng: random.Random,
    produce: int,
    first: tuple[int, int],
    *,
    until_idle: bool,
    looking: bool = False,
    **settings: Any,
) -> None:
    app, log = build(folder, holding=first[0] > 0, **settings)
    app.store.metronome = _watch_sweeps(folder, **settings)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, _tell)
    await app.open()
    others = [libraries.look_on(folder, random.Random(1))] if looking else []
    if any(first):
        hanging = [app.draft("hang", {}) for _ in range(first[0])]
        napping = [app.draft("slow", {}, metadata={"seconds": 0.3}) for _ in range(first[1])]
        await app.enqueue_many(hanging + napping)
    producing = asyncio.ensure_future(_produce(app, log, rng, produce))
    if until_idle and produce:
        await producing
    await app.run(until_idle=until_idle)
    for task in (producing, *others):
        task.cancel()
    await app.close()


def _watch_sweeps(folder: str, *, url: str = "", sweep: float = 0.1, **_others: Any) -> Metronome:
    metronome = Metronome(Log(Path(folder) / sweeps.FOLDER), lambda: looks.now_ms(url), sweep)
    metronome.watch()
    return metronome


def _tell() -> None:
    """Say what this worker waits for."""
    for task in asyncio.all_tasks():
        task.print_stack()


async def _produce(app: Redrive, log: Log, rng: random.Random, letters: int) -> None:
    left, batches = letters, 0
    while left > 0:
        count = min(left, rng.choice((1, 1, 1, 3, 8)))
        left, batches = left - count, batches + 1
        with contextlib.suppress(StoreError):
            await app.enqueue_many([_draft(app, rng) for _ in range(count)])
        if batches % 6 == 2:
            with contextlib.suppress(StoreError):
                await _operate(app, log, rng)
        await asyncio.sleep(rng.uniform(0, 0.01))


def _draft(app: Redrive, rng: random.Random):
    kind = rng.choice(KINDS)
    return app.draft(
        kind,
        {"n": rng.randrange(1000), "pad": "x" * rng.choice((10, 200, 6_000))},
        delay=rng.choice((0, 0, 0, 0.05)),
        priority=rng.choice(("high", "medium", "medium", "low")),
        metadata={"seconds": rng.uniform(0, 0.04)} if kind == "slow" else None,
    )


async def _operate(app: Redrive, log: Log, rng: random.Random) -> None:
    """Replay some dead letters; archive and purge others."""
    if rng.random() < 0.7:
        await app.desk.replay(query="kind:bad", limit=3, reason="again")
        return
    page = await app.desk.ls("status:failed kind:bad", limit=2)
    ids = [letter.id for letter in page.letters]
    if ids:
        log.write(*[("purged", letter_id) for letter_id in ids])
        with contextlib.suppress(Exception):  # somebody else was faster
            await app.desk.archive(*ids)
            await app.desk.purge(*ids)


def wait_for(condition, seconds: float, step: float = 0.01) -> bool:
    """Look until *condition* holds, at most *seconds*."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(step)
    return True
