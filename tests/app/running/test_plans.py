"""Plans of operators: a worker carries them out, or the caller where no worker does."""

from __future__ import annotations

import asyncio
import secrets

import pytest
from tests.app.waiting import until

from redrive import Redrive, RetryPolicy, Status
from redrive.core.facts import Replayed
from redrive.core.plan import PlanState
from redrive.desk.desk import Desk
from redrive.engine.worker.duties.plans import PlanCarrier
from redrive.testing import FakeClock

FAILED = "status:failed"


def url(kind: str, folder) -> str:
    if kind != "postgres":
        return "memory://" if kind == "memory" else f"sqlite:///{folder}/redrive.db"
    pytest.importorskip("asyncpg")
    from tests.stores.conftest import server_url  # noqa: PLC0415 - only where there is a driver

    return f"{server_url()}?schema=plans_{secrets.token_hex(4)}"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def shop(request, folder):
    """An application whose handler fails until it is mended."""
    app = Redrive(url(request.param, folder), sweep_seconds=0.2)
    app.broken = True

    @app.handler("order.created", policy=RetryPolicy.NEVER)
    async def ship(order: dict):
        if app.broken:
            raise OSError("down")

    return app


async def dead(shop, count: int) -> None:
    shop.broken = True
    await shop.enqueue_many([shop.draft("order.created", {"n": n}) for n in range(count)])
    await shop.run(until_idle=True, signals=False)
    shop.broken = False


def facts_of(shop) -> list[Replayed]:
    told: list[Replayed] = []
    shop.listen(lambda fact: told.append(fact) if isinstance(fact, Replayed) else None)
    return told


async def test_a_worker_carries_out_the_plan_of_a_caller(shop):
    async with shop:
        await dead(shop, 5)
        by_worker, by_caller = facts_of(shop), []
        running = asyncio.ensure_future(shop.run(signals=False))
        await until(lambda: shop._running)
        desk = Desk(shop.store, by="ana", announce=by_caller.append, offer=60.0)  # a busy machine has time to take it
        done = await desk.replay(query=FAILED, reason="fixed")
        await until(lambda: by_worker)  # the caller may see the end of the plan before the worker announces it
        assert (done.acted, done.state, done.by) == (5, "done", "ana")
        assert [(fact.count, fact.by, fact.reason, fact.plan) for fact in by_worker] == [(5, "ana", "fixed", done.plan)]
        assert by_caller == []
        shop.stop()
        await running


async def test_a_caller_carries_it_out_at_once_where_no_worker_runs(shop):
    async with shop:
        await dead(shop, 5)
        told = facts_of(shop)
        done = await asyncio.wait_for(shop.desk.replay(query=FAILED, reason="fixed"), 0.9)
        assert (done.acted, done.done) == (5, True)
        assert [(fact.count, fact.plan) for fact in told] == [(5, done.plan)]


async def test_a_caller_carries_it_out_if_no_worker_takes_it_in_time(shop):
    async with shop:
        await dead(shop, 3)
        alive = shop.parts().worker
        await alive._beat()  # it lives, and does nothing else
        told: list[object] = []
        done = await Desk(shop.store, announce=told.append, offer=0.2).replay(query=FAILED)
        assert (done.acted, done.done, len(told)) == (3, True, 1)


async def test_until_idle_finishes_running_plans_and_what_they_replay(shop):
    async with shop:
        await dead(shop, 4)
        plan = await shop.desk.start("replay", FAILED, paused=False)
        assert await shop.run(until_idle=True, signals=False)
        assert (await shop.desk.plan(plan.id)).state is PlanState.DONE
        assert {letter.status for letter in (await shop.desk.ls()).letters} == {Status.DELIVERED}


async def test_a_plan_that_was_not_begun_or_is_paused_is_no_work(shop):
    async with shop:
        await dead(shop, 2)
        plan = await shop.desk.start("replay", FAILED)
        assert await shop.run(until_idle=True, signals=False)
        assert (await shop.desk.plan(plan.id)).acted == 0
        assert (await shop.desk.carry_out(plan.id)).acted == 2


async def test_a_pause_a_rate_and_a_halt_take_effect_between_two_pages(driven, app):
    clock = FakeClock()
    app.add_handler("order.created", lambda order: 1 / 0, policy=RetryPolicy.NEVER)
    async with driven(app) as test:
        await app.enqueue_many([app.draft("order.created", {"n": n}) for n in range(20)])
        await test.run_until_idle()
        told: list[object] = []
        carrier = PlanCarrier(test.store, "w1", told.append, clock)
        plan = await app.desk.start("replay", FAILED, rate=4, paused=False)

        async def acted_after(seconds: float = 1.0) -> int:
            clock.advance(seconds)
            await carrier.once()
            return (await app.desk.plan(plan.id)).acted

        assert await acted_after() == 4
        assert await acted_after(0.5) == 4  # a second's worth is done: the next page waits
        assert await acted_after() == 8
        await app.desk.pause_plan(plan.id, reason="look first")
        assert await acted_after() == 8
        await app.desk.resume_plan(plan.id, rate=2)
        assert await acted_after() == 10
        assert await acted_after() == 12
        await app.desk.halt_plan(plan.id)
        assert await acted_after() == 12
        assert [fact.count for fact in told] == [4, 4, 2, 2]
        assert [one.state for one in await app.desk.plans()] == ["halted"]


async def test_a_worker_that_stops_lets_go_of_its_plan(shop):
    async with shop:
        await dead(shop, 30)
        plan = await shop.desk.start("replay", FAILED, rate=10, paused=False)
        running = asyncio.ensure_future(shop.run(signals=False))
        await until(lambda: shop._running)
        while not (await shop.desk.plan(plan.id)).held:  # noqa: ASYNC110 - only the store knows
            await asyncio.sleep(0)
        shop.stop()
        await running
        left = await shop.desk.plan(plan.id)
        assert (left.holder, left.held, left.state) == ("", False, PlanState.RUNNING)
        assert 0 < left.acted < 30
