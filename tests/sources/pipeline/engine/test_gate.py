"""Whether a node moves: holds, breakers, pauses."""

from __future__ import annotations

import asyncio

import pytest

from redrive.sources.pipeline.engine.gate import NodeGate, PartitionLeft
from redrive.sources.pipeline.graph.model import NodeBreaker
from redrive.sources.pipeline.modules.failures import Remedy, Trouble

DENIED = Trouble(Remedy.HOLD, "PERMISSION_DENIED", "no token")
BAD = Trouble(Remedy.QUARANTINE, "INVALID_ARGUMENT", "no")
AWAY = Trouble(Remedy.RETRY, "UNAVAILABLE", "away")


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self):
        return self.now

    async def sleep(self, _seconds):
        await asyncio.sleep(0)


@pytest.fixture
def clock():
    return Hand()


async def waiters(gate, number, is_leaving=lambda: False):
    tasks = [asyncio.create_task(gate.enter(is_leaving)) for _ in range(number)]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def through(gate, tasks):
    gate.tick()
    for _ in range(5):
        await asyncio.sleep(0)
    return sum(task.done() for task in tasks)


async def test_a_module_that_refuses_everybody_holds_its_node_at_once(clock):
    gate = NodeGate("parse", clock)
    assert gate.stops(DENIED)
    assert "PERMISSION_DENIED" in gate.reason
    tasks = await waiters(gate, 3)
    assert await through(gate, tasks) == 0
    clock.now += 30.0
    assert await through(gate, tasks) == 1  # one tries
    assert await through(gate, tasks) == 1
    assert gate.stops(DENIED)
    clock.now += 30.0
    assert await through(gate, tasks) == 2
    gate.succeeded()
    assert await through(gate, tasks) == 3
    assert not gate.is_shut
    await gate.close()


async def test_ten_documents_in_quarantine_without_a_success_hold_the_node(clock):
    gate = NodeGate("parse", clock)
    assert not any(gate.stops(BAD) for _ in range(9))
    gate.succeeded()
    assert not any(gate.stops(BAD) for _ in range(9))
    assert not gate.is_shut
    assert not gate.stops(BAD)  # the tenth goes to quarantine itself
    assert gate.is_shut
    assert gate.stops(BAD)  # those after it stay where they are
    await gate.close()


async def test_without_a_breaker_a_module_that_is_away_holds_nothing(clock):
    gate = NodeGate("parse", clock)
    assert not any(gate.stops(AWAY) for _ in range(1000))
    assert not gate.is_shut


async def test_a_breaker_opens_after_its_failures_in_a_row(clock):
    gate = NodeGate("parse", clock, NodeBreaker(failures=3, open_for=5.0))
    gate.stops(AWAY), gate.stops(AWAY), gate.succeeded()
    assert not any([gate.stops(AWAY), gate.stops(AWAY), gate.stops(AWAY)])
    assert gate.is_shut
    assert gate.stops(AWAY)
    tasks = await waiters(gate, 2)
    clock.now += 5.0
    assert await through(gate, tasks) == 1
    gate.succeeded()
    assert await through(gate, tasks) == 2
    await gate.close()


async def test_a_document_leaves_a_shut_gate_with_its_partition(clock):
    gate, leaving = NodeGate("parse", clock), False
    gate.stops(DENIED)
    [task] = await waiters(gate, 1, lambda: leaving)
    leaving = True
    await through(gate, [task])
    with pytest.raises(PartitionLeft):
        await task
    assert gate.waiting == 0
    await gate.close()


async def test_a_pause_ends_when_an_operator_says_so_and_not_by_itself(clock):
    gate = NodeGate("parse", clock)
    gate.pause("maintenance")
    tasks = await waiters(gate, 2)
    clock.now += 1000.0
    assert await through(gate, tasks) == 0
    gate.resume()
    assert await through(gate, tasks) == 2
    await gate.close()


async def test_a_document_that_skips_a_held_node_lets_the_next_one_try(clock):
    gate = NodeGate("parse", clock)
    gate.stops(DENIED)
    tasks = await waiters(gate, 2)
    clock.now += 30.0
    assert await through(gate, tasks) == 1
    gate.skipped()
    assert await through(gate, tasks) == 2
    await gate.close()
