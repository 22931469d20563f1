"""The wall clock jumps by hours both ways: nothing is lost, nothing sticks, no lease notices."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.torture import checker
from tests.torture.runs import powercut

from redrive.core.breaker import BreakerRules, BreakerState
from redrive.core.letter import Draft, Status
from redrive.core.moves import Move
from redrive.stores.clock import ManualClock
from redrive.stores.contract import QueueSpec, Want
from redrive.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.torture

HOUR = 3_600.0
JUMPS = [5 * HOUR, -5 * HOUR]
WANT = Want("work", ("a",), 100)
RELEASED = Move(Status.PENDING, "released", counts=False, loss=True)


@pytest.fixture
async def store(quick_folder: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(quick_folder / "redrive.db", clock=ManualClock())
    await store.open()
    yield store
    await store.close()


def draft(name: str, **fields) -> Draft:
    return Draft(**{"id": name, "queue": "work", "kind": "a", "payload": b"{}", **fields})


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_jump_ends_no_living_claim(store: SqliteStore, jump: float):
    await store.put([draft("1")])
    claims = await store.claim([WANT], lease=60, worker="w")
    store._clock.jump(jump)
    assert not await store.expired(10)
    assert await store.settle([(claims[0], powercut.DELIVERED)]) == (True,)


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_jump_does_not_keep_a_dead_workers_letter(store: SqliteStore, jump: float):
    await store.put([draft("1")])
    await store.claim([WANT], lease=60, worker="gone")
    store._clock.jump(jump)
    store._clock.advance(61)
    lost = await store.expired(10)
    assert await store.settle([(lost[0], RELEASED)]) == (True,)
    assert await store.claim([WANT], lease=60, worker="next")


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_jump_shifts_a_due_time_by_its_size_at_most(store: SqliteStore, jump: float):
    await store.put([draft("1", delay=10)])
    store._clock.jump(jump)
    store._clock.advance(10 + max(0.0, -jump))
    assert await store.claim([WANT], lease=60, worker="w")


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_queue_with_a_rate_goes_on_after_a_jump(store: SqliteStore, jump: float):
    await store.declare([QueueSpec(name="work", rate=1.0)])
    await store.put([draft(str(number), due_us=0) for number in range(5)])
    assert await store.claim([WANT], lease=60, worker="w")
    store._clock.jump(jump)
    assert not await store.claim([WANT], lease=60, worker="w")
    store._clock.advance(2)
    assert await store.claim([WANT], lease=60, worker="w")


@pytest.mark.parametrize("jump", JUMPS)
async def test_an_open_breaker_heals_after_a_jump(store: SqliteStore, jump: float):
    rules = BreakerRules()
    opened = await store.report("smtp", rules, successes=0, failures=1_000)
    assert opened.state is BreakerState.OPEN
    store._clock.jump(jump)
    store._clock.advance(rules.open_for + 1)
    assert await store.probe("smtp", rules, 5)


@pytest.mark.parametrize("seed", range(20))
async def test_random_work_under_random_jumps_comes_to_rest(store: SqliteStore, seed: int):
    rng, clock = random.Random(seed), store._clock
    offered, jumped = 0, 0.0
    for _ in range(60):
        fate = rng.random()
        if fate < 0.3:
            await store.put([draft(f"{offered}-{n}", delay=rng.choice((0, 5))) for n in range(3)])
            offered += 1
        elif fate < 0.6:
            claims = await store.claim([Want("work", ("a",), 5)], lease=30, worker="w")
            if rng.random() < 0.7:
                await store.settle([(claim, powercut.DELIVERED) for claim in claims])
        elif fate < 0.8:
            jump = rng.uniform(-8, 8) * HOUR
            jumped += abs(jump)
            clock.jump(jump)
        else:
            clock.advance(rng.uniform(0, 20))
            await store.settle([(claim, RELEASED) for claim in await store.expired(100)])
    clock.advance(jumped + 60)
    await store.settle([(claim, RELEASED) for claim in await store.expired(1_000)])
    while claims := await store.claim([WANT], lease=30, worker="w"):
        assert all(await store.settle([(claim, powercut.DELIVERED) for claim in claims]))
    await store.close()
    rows = checker.read_rows(store.path)
    assert len(rows) == offered * 3
    assert {row.status for row in rows.values()} == {"delivered"}, f"seed {seed}"
    assert not checker.books_problems(store.path)
