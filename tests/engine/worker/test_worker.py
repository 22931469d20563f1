"""The loops around a processor, on the real clock."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.engine.starting import PATIENCE, soon

from redrive import Redrive, RetryPolicy, Status
from redrive.core.decide import DELIVERED
from redrive.core.facts import Faulted, Rescued, WorkerStopped
from redrive.engine.worker.worker import Worker
from redrive.errors import SettingsError, WorkerExhausted
from redrive.stores.contract import Want
from redrive.stores.memory import MemoryStore
from redrive.wiring import open_store


async def test_a_worker_shows_signs_of_life_while_it_runs():
    for lease in (0.06, 1.5, 15.0):  # a machine that stands still for longer than the lease proves nothing
        kept = await _keeps_its_letter(lease)
        if kept:
            break
    assert kept


async def _keeps_its_letter(lease: float) -> bool:
    """Run a letter for longer than *lease*, and return whether its worker was seen alive all the time."""
    app = Redrive("memory://", lease_seconds=lease)
    began, gate = asyncio.Event(), asyncio.Event()

    @app.handler("order.created")
    async def ship(order: dict):
        began.set()
        await gate.wait()

    await app.enqueue("order.created", {})
    task = asyncio.ensure_future(app.run(signals=False))
    await soon(began.wait())
    seen, alive = set(), True
    async with asyncio.timeout(PATIENCE):
        while len(seen) < 5 and alive:
            [beat] = await app.store.workers()
            alive = beat.alive
            seen.add(beat.seen_us)
            await asyncio.sleep(0.001)
    lost = await app.store.expired(10)
    gate.set()
    app.stop()
    await soon(task)
    [letter] = (await app.desk.ls()).letters
    return alive and lost == [] and (letter.status, letter.losses) == (Status.DELIVERED, 0)


async def test_a_running_worker_rescues_what_another_lost():
    app = Redrive("memory://", sweep_seconds=0.01)
    facts, done = [], asyncio.Event()
    app.listen(facts.append)

    @app.handler("order.created")
    async def ship(order: dict):
        done.set()

    await app.enqueue("order.created", {})
    await app.store.claim([Want("default", ("order.created",), 1)], lease=0.01, worker="dead")
    task = asyncio.ensure_future(app.run(signals=False))
    await soon(done.wait())
    app.stop()
    await soon(task)
    assert [fact.worker for fact in facts if isinstance(fact, Rescued)] == ["dead"]


async def test_until_idle_waits_for_a_dead_workers_letter_and_runs_it():
    app = Redrive("memory://", sweep_seconds=0.01, poll_seconds=0.01)
    ran = []

    @app.handler("order.created")
    async def ship(order: dict):
        ran.append(1)

    await app.enqueue("order.created", {})
    await app.store.claim([Want("default", ("order.created",), 1)], lease=0.05, worker="dead")
    await soon(app.run(until_idle=True, signals=False))
    assert ran == [1]


async def test_a_worker_with_too_many_hanging_threads_ends_to_be_recycled():
    app = Redrive("memory://", concurrency=20, drain_seconds=0.05)
    release = threading.Event()

    @app.handler("order.created", timeout=0.02, policy=RetryPolicy.NEVER)
    def ship(order: dict):
        release.wait(PATIENCE)

    await app.enqueue_many([app.draft("order.created", {}) for _ in range(12)])
    try:
        with pytest.raises(WorkerExhausted, match="too many of its threads hang"):
            await soon(app.run(until_idle=True, signals=False))
    finally:
        release.set()
    books = (await app.desk.stats()).books
    assert books["failed"] >= 8
    assert books["failed"] + books["pending"] == 12
    assert books["in_flight"] == 0


async def test_threads_suffice_for_all_that_the_queues_let_run_at_once():
    app = Redrive("memory://")
    app.queue("wide", concurrency=30)
    all_at_once = threading.Barrier(40, timeout=PATIENCE / 2)

    def ship(order: dict):
        all_at_once.wait()

    app.add_handler("order.created", ship, queue="wide", policy=RetryPolicy.NEVER)
    app.add_handler("order.changed", ship, policy=RetryPolicy.NEVER)
    await app.enqueue_many([app.draft("order.created", {}) for _ in range(30)])
    await app.enqueue_many([app.draft("order.changed", {}) for _ in range(10)])
    await soon(app.run(until_idle=True, signals=False))

    assert (await app.desk.stats()).books["delivered"] == 40


@pytest.mark.parametrize(
    "url", ["mysql://ana:hunter2@db/letters", "mysql://db/letters?password=hunter2", "sqlite:hunter2@db"]
)
def test_a_store_that_is_not_known_is_refused_without_its_password(url):
    with pytest.raises(SettingsError) as caught:
        open_store(url)

    assert "it must be like sqlite:///redrive.db" in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_a_store_that_is_broken_ends_the_worker_with_its_error():
    class Broken(MemoryStore):
        async def exchange(self, *given, **named):
            raise RuntimeError("a bug of ours")

    app = Redrive("memory://", store=Broken())
    app.add_handler("order.created", lambda order: None)
    with pytest.raises(RuntimeError, match="a bug of ours"):
        await soon(app.run(signals=False))


async def test_a_heartbeat_that_is_broken_ends_the_worker_with_its_error():
    class Broken(MemoryStore):
        beats = 0

        async def extend(self, *given, **named):
            self.beats += 1
            if self.beats > 1:
                raise RuntimeError("a bug of ours")
            return await super().extend(*given, **named)

    app = Redrive("memory://", store=Broken(), lease_seconds=0.03)
    app.add_handler("order.created", lambda order: None)
    with pytest.raises(RuntimeError, match="a bug of ours"):
        await soon(app.run(signals=False))


async def test_a_worker_that_ends_in_order_is_seen_no_more():
    app = Redrive("memory://")
    seen = []

    @app.handler("order.created")
    async def ship(order: dict):
        seen.extend(await app.store.workers())

    await app.enqueue("order.created", {})
    await soon(app.run(until_idle=True, signals=False))

    assert [(beat.alive, beat.in_flight) for beat in seen] == [(True, 1)]
    assert await app.store.workers() == []


async def test_a_worker_that_cannot_sign_off_ends_all_the_same():
    class Broken(MemoryStore):
        async def leave(self, worker):
            raise RuntimeError("a bug of ours")

    app = Redrive("memory://", store=Broken())
    facts = []
    app.listen(facts.append)
    app.add_handler("order.created", lambda order: None)

    assert await soon(app.run(until_idle=True, signals=False)) is True
    assert [fact.doing for fact in facts if isinstance(fact, Faulted)] == ["leave"]
    assert isinstance(facts[-1], WorkerStopped)


@pytest.mark.parametrize("method", ["expired", "retain", "tallies", "wait"])
async def test_a_duty_that_meets_what_it_cannot_read_is_told_of_and_the_worker_goes_on(method):
    async def broken(*_given, **_named):
        raise RuntimeError("a bug of ours")

    store = type("Broken", (MemoryStore,), {method: broken})()
    app = Redrive("memory://", store=store, sweep_seconds=0.01, poll_seconds=0.01)
    facts, told_twice, ran = [], asyncio.Event(), asyncio.Event()

    def listen(fact):
        facts.extend([fact] if isinstance(fact, Faulted) else [])
        if len(facts) == 2:
            told_twice.set()

    @app.handler("order.created")
    async def ship(order: dict):
        ran.set()

    app.listen(listen)
    task = asyncio.ensure_future(app.run(signals=False))
    await soon(told_twice.wait())
    await app.enqueue("order.created", {})
    await soon(ran.wait())
    app.stop()
    await soon(task)
    assert {fact.why for fact in facts} == {"RuntimeError: a bug of ours"}
    assert len({fact.doing for fact in facts}) == 1


async def test_two_workers_share_the_letters_and_none_runs_twice(tmp_path):
    ran = []

    def build() -> Redrive:
        app = Redrive(f"sqlite:///{tmp_path}/redrive.db", poll_seconds=0.02)

        @app.handler("order.created")
        async def ship(order: dict):
            ran.append(order["n"])
            await asyncio.sleep(0)

        return app

    async with build() as one, build() as two:
        await one.enqueue_many([one.draft("order.created", {"n": n}) for n in range(300)])
        await soon(asyncio.gather(one.run(until_idle=True, signals=False), two.run(until_idle=True, signals=False)))
        assert (await one.desk.stats()).books["delivered"] == 300
    assert sorted(ran) == list(range(300))


async def test_until_idle_ends_soon_after_another_worker_has_settled_the_last_letter(monkeypatch):
    app = Redrive("memory://", poll_seconds=60)
    rests, wait = [], Worker._wait

    @app.handler("order.created")
    async def ship(order: dict): ...

    await app.enqueue("order.created", {})
    [claim] = await app.store.claim([Want("default", ("order.created",), 1)], lease=60, worker="another")

    async def settled_meanwhile(worker, seconds):
        rests.append(seconds)
        if len(rests) == 2:
            assert await app.store.settle([(claim, DELIVERED)]) == (True,)
        await wait(worker, seconds)

    monkeypatch.setattr(Worker, "_wait", settled_meanwhile)
    assert await soon(app.run(until_idle=True, signals=False))
    assert max(rests) < 0.1, "nobody rings when another worker's letter ends, so it has to be looked for"


async def test_a_worker_looks_for_reasons_only_if_it_leaves_letters():
    class Counting(MemoryStore):
        looks = 0

        async def breakers(self):
            self.looks += 1
            return await super().breakers()

    app = Redrive("memory://", store=(store := Counting()))
    app.add_handler("order.created", lambda order: None)
    await app.enqueue("order.created", 1)
    assert await soon(app.run(until_idle=True, signals=False))
    assert store.looks == 0
    await app.enqueue("order.unknown", 2)
    assert await soon(app.run(until_idle=True, signals=False))
    assert store.looks == 1
