from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest
from tests.engine.starting import PATIENCE, begin, letter, run, soon

from redrive.core.decide import SUCCEEDED, Interrupted
from redrive.engine.handler import build_handler
from redrive.engine.runners.threads import ThreadEngine

SHADE = contextvars.ContextVar("SHADE", default="none")


class Gates:
    """Handlers that wait at a gate; every gate opens when the test ends."""

    def __init__(self):
        self.arrived = threading.Semaphore(0)
        self.open = threading.Event()

    def wait(self, payload):
        self.arrived.release()
        self.open.wait(PATIENCE)

    async def all_arrived(self, count):
        for _ in range(count):
            await soon(asyncio.to_thread(self.arrived.acquire, timeout=PATIENCE))


@pytest.fixture
def gates():
    gates = Gates()
    yield gates
    gates.open.set()


@pytest.fixture
async def engine():
    engine = ThreadEngine(2, max_abandoned=2)
    yield engine
    await engine.close(0)


async def test_a_sync_handler_runs_outside_of_the_event_loops_thread(engine):
    handler = build_handler("order", lambda payload: threading.get_ident(), succeeded=_is_not(threading.get_ident()))
    assert await run(engine, handler) is SUCCEEDED


def _is_not(ident):
    return lambda result: result != ident


async def test_outcomes_are_told_on_the_event_loops_thread(engine):
    told = asyncio.get_running_loop().create_future()
    engine.start(
        build_handler("order", lambda payload: None),
        letter(),
        None,
        lambda *_: told.set_result(threading.get_ident()),
    )
    assert await soon(told) == threading.get_ident()


async def test_context_variables_reach_the_handler_and_go_no_further(engine):
    def looks(payload):
        seen = SHADE.get()
        SHADE.set("red")
        return seen

    SHADE.set("blue")
    handler = build_handler("order", looks, succeeded=lambda seen: seen == "blue")

    assert [await run(engine, handler) for _ in range(3)] == [SUCCEEDED] * 3
    assert SHADE.get() == "blue"


async def test_many_letters_share_few_threads_and_each_has_one_outcome(engine):
    seen = set()
    handler = build_handler("order", lambda payload: seen.add(threading.get_ident()), timeout=30)
    outcomes = [begin(engine, handler) for _ in range(2000)]

    assert await soon(asyncio.gather(*outcomes)) == [SUCCEEDED] * 2000
    assert len(seen) <= 2


async def test_system_exit_is_the_handlers_failure_and_the_thread_goes_on(engine):
    def leaves(payload):
        raise SystemExit

    for _ in range(4):
        assert (await run(engine, build_handler("order", leaves))).failure.error_type == "SystemExit"


async def test_a_handler_that_takes_too_long_is_settled_and_its_thread_replaced(engine, gates):
    stuck = build_handler("order", gates.wait, timeout=0.05)
    outcome = await run(engine, stuck)

    assert outcome.failure.message == "timed out after 0.05 s"
    assert not engine.exhausted
    both = [begin(engine, build_handler("order", lambda payload: None)) for _ in range(2)]
    assert await soon(asyncio.gather(*both)) == [SUCCEEDED] * 2


async def test_the_time_limit_counts_from_when_a_thread_takes_the_letter():
    for limit in (0.05, 1.0, 10.0):  # a busy machine may take longer than the first even for nothing
        engine, gates = ThreadEngine(1), Gates()
        first = begin(engine, build_handler("order", gates.wait))
        second = begin(engine, build_handler("order", lambda payload: None, timeout=limit))
        await gates.all_arrived(1)
        await asyncio.sleep(2 * limit)  # longer than the second letter's limit: it waits for the only thread
        assert not second.done()
        gates.open.set()
        outcomes = await soon(asyncio.gather(first, second))
        await engine.close(0)
        if outcomes == [SUCCEEDED] * 2:
            break

    assert outcomes == [SUCCEEDED] * 2


async def test_too_many_hanging_threads_exhaust_the_engine_until_they_come_back(engine, gates):
    stuck = build_handler("order", gates.wait, timeout=0.05)
    for _ in range(2):
        await run(engine, stuck)

    assert engine.exhausted
    refused = begin(engine, build_handler("order", lambda payload: None)).result()
    assert isinstance(refused, Interrupted)
    assert refused.wait > 0

    hanging = tuple(engine._abandoned)
    gates.open.set()
    for thread in hanging:
        await asyncio.to_thread(thread.join, PATIENCE)
    assert not engine.exhausted
    assert await run(engine, build_handler("order", lambda payload: None)) is SUCCEEDED


async def test_a_thread_that_comes_back_while_it_is_abandoned_is_not_counted_for_ever(engine, gates):
    class ComesBackAtOnce(dict):
        """Lets the handler return, and its thread end, the moment its run is taken away."""

        def pop(self, key, default=None):
            thread = super().pop(key, default)
            if thread not in (None, threading.current_thread()):
                gates.open.set()
                thread.join(PATIENCE)
            return thread

    engine._running = ComesBackAtOnce()
    outcome = await run(engine, build_handler("order", gates.wait, timeout=0.05))

    assert outcome.failure.message == "timed out after 0.05 s"
    assert not engine._abandoned


async def test_interrupt_settles_what_runs_and_what_waits_at_once(engine, gates):
    outcomes = [begin(engine, build_handler("order", gates.wait, timeout=30)) for _ in range(5)]
    await gates.all_arrived(2)
    engine.interrupt()

    assert [type(outcome.result()) for outcome in outcomes] == [Interrupted] * 5
    gates.open.set()


async def test_close_waits_for_what_runs_and_its_threads_end(gates):
    engine = ThreadEngine(2)
    outcome = begin(engine, build_handler("order", gates.wait))
    await gates.all_arrived(1)
    threads = tuple(engine._threads)
    closing = asyncio.ensure_future(engine.close(PATIENCE))
    await asyncio.sleep(0)
    assert not closing.done()
    gates.open.set()
    await soon(closing)

    assert outcome.result() is SUCCEEDED
    for thread in threads:
        await asyncio.to_thread(thread.join, PATIENCE)
        assert not thread.is_alive()


async def test_close_leaves_what_outlasts_the_grace(gates):
    engine = ThreadEngine(1)
    outcome = begin(engine, build_handler("order", gates.wait))
    await gates.all_arrived(1)
    await soon(engine.close(0.01))

    assert isinstance(outcome.result(), Interrupted)
    assert isinstance(begin(engine, build_handler("order", gates.wait)).result(), Interrupted)
