"""Letters that a busy child is sent ahead: they wait, and nothing that befalls the one before is theirs."""

from __future__ import annotations

import asyncio
import json
import math
import os
import threading
import time

import pytest
import pytest_asyncio
from tests.engine import handlers_for_processes as handlers
from tests.engine.starting import PATIENCE, begin, comes_true, letter, opened, opened_now, run, soon

from redrive.core.decide import SUCCEEDED, Failed, Interrupted, Lost
from redrive.engine.handler import build_handler
from redrive.engine.runners import pace
from redrive.engine.runners.processes.pool import ProcessEngine

DIED = Lost("its process exited with code 3")


def handler(function, **options):
    return build_handler("order", function, engine="process", **options)


OBEY = handler(handlers.obey)


def order(**words):
    return letter(json.dumps(words, default=str).encode())


@pytest.fixture
def all_are_quick(monkeypatch):
    """Let one letter, however long it took, be enough to call its handler quick: no machine is too slow for that."""
    monkeypatch.setattr(pace, "_QUICK", math.inf)
    monkeypatch.setattr(pace, "_IN_A_ROW", 1)


@pytest.fixture
def gate(tmp_path):
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


@pytest_asyncio.fixture
async def engine(all_are_quick):
    """One child, which has run a letter."""
    engine = ProcessEngine(1)
    assert await run(engine, OBEY, order()) is SUCCEEDED
    yield engine
    await engine.close(0)


def child_of(engine):
    [child] = engine._children
    return child


def hold(engine, gate, **words):
    """Start a letter that runs until the gate opens."""
    return begin(engine, OBEY, order(gate=gate, **words))


async def test_a_busy_child_is_sent_one_letter_ahead_and_the_others_wait_here(engine, gate):
    outcomes = [hold(engine, gate), *(begin(engine, OBEY, order()) for _ in range(3))]

    assert child_of(engine).ahead.ticket is outcomes[1]
    assert [each.ticket for [each] in engine._waiting] == outcomes[2:]
    (await opened(gate)).close()
    assert await soon(asyncio.gather(*outcomes)) == [SUCCEEDED] * 4


# ---------------------------------------------------------------------- recalled

PAUSED = Interrupted("its queue is paused")


async def test_a_letter_sent_ahead_does_not_begin_once_it_is_recalled(engine, gate, tmp_path):
    held, notes = hold(engine, gate), tmp_path / "notes"
    others = [begin(engine, OBEY, order(note=notes, name=name)) for name in "abc"]
    assert child_of(engine).ahead.ticket is others[0]
    engine.recall({"another"}, PAUSED)
    assert not any(each.done() for each in others)
    engine.recall({"default"}, PAUSED)
    (await opened(gate)).close()

    assert await soon(asyncio.gather(held, *others)) == [SUCCEEDED, *[PAUSED] * 3]
    assert await run(engine, OBEY, order(note=notes, name="d")) is SUCCEEDED
    assert notes.read_text() == "d"


async def test_a_letter_that_was_recalled_goes_back_when_its_child_dies(engine, gate):
    held, other = hold(engine, gate, die=True), begin(engine, OBEY, order())
    engine.recall({"default"}, PAUSED)
    (await opened(gate)).close()

    assert await soon(asyncio.gather(held, other)) == [DIED, PAUSED]


async def test_a_letter_that_has_begun_is_not_recalled(engine, gate):
    held = hold(engine, gate)
    (pipe := await opened(gate)).flush()  # it has begun
    engine.recall({"default"}, PAUSED)
    pipe.close()

    assert await soon(held) is SUCCEEDED


# ---------------------------------------------------------------------- who is to blame


@pytest.mark.parametrize("poison", range(4))
async def test_a_death_costs_exactly_the_letter_that_had_begun(engine, poison):
    outcomes = [begin(engine, OBEY, order(die=number == poison)) for number in range(4)]

    assert await soon(asyncio.gather(*outcomes)) == [DIED if number == poison else SUCCEEDED for number in range(4)]


async def test_a_letter_sent_ahead_of_a_death_is_the_next_to_run(engine, gate, tmp_path):
    notes = tmp_path / "notes"
    poison = hold(engine, gate, die=True)
    others = [begin(engine, OBEY, order(note=notes, name=name)) for name in "abc"]
    assert child_of(engine).ahead.ticket is others[0]
    (await opened(gate)).close()

    assert await soon(asyncio.gather(poison, *others)) == [DIED, *[SUCCEEDED] * 3]
    assert notes.read_text() == "abc"


async def test_a_letter_for_a_busy_child_that_has_just_died_costs_nothing(engine, gate):
    held, child = hold(engine, gate), child_of(engine)
    with await opened(gate):  # it has begun
        child._process.kill()
        await asyncio.to_thread(child._process.wait)  # dead, but the loop has not heard of it
        other = begin(engine, OBEY, order())

        assert await soon(held) == Lost("its process was killed by SIGKILL")
    assert await soon(other) is SUCCEEDED


async def test_garbage_from_a_child_costs_only_the_letter_that_ran(engine):
    garbler = handler(handlers.send_garbage)
    assert await run(engine, garbler, letter(b'{"garbage": ""}')) is SUCCEEDED
    outcomes = [begin(engine, garbler, letter(b'{"garbage": "????"}')), begin(engine, OBEY, order())]
    assert child_of(engine).ahead.ticket is outcomes[1]

    assert [type(each) for each in await soon(asyncio.gather(*outcomes))] == [Lost, type(SUCCEEDED)]


# ---------------------------------------------------------------------- time limits


async def test_the_time_of_a_letter_counts_from_when_it_begins_not_from_when_it_is_sent(engine, gate):
    child, limits = child_of(engine), []
    engine.start(OBEY, order(gate=gate), None, lambda *_: limits.append(child.limit))
    limited = begin(engine, handler(handlers.obey, timeout=PATIENCE), order())
    assert (child.ahead.ticket, child.limit) == (limited, None)
    (await opened(gate)).close()

    assert await soon(limited) is SUCCEEDED
    assert limits == [engine._limits.by_span[PATIENCE]]


async def test_a_letter_that_was_sent_ahead_is_killed_when_its_time_is_up(engine, gate):
    held, looping = hold(engine, gate), begin(engine, handler(handlers.obey, timeout=0.1), order(loop=True))
    assert child_of(engine).ahead.ticket is looping
    (await opened(gate)).close()

    assert await soon(held) is SUCCEEDED
    assert (await soon(looping)).failure.message == "timed out after 0.1 s"
    assert await run(engine, OBEY, order()) is SUCCEEDED


async def test_a_kill_because_the_time_of_the_one_before_is_up_costs_a_letter_nothing(engine):
    engine._paces[limited := handler(handlers.obey, timeout=0.1)].note(0)
    outcomes = [begin(engine, limited, order(loop=True)), begin(engine, OBEY, order())]
    assert child_of(engine).ahead.ticket is outcomes[1]

    assert (await soon(outcomes[0])).failure.message == "timed out after 0.1 s"
    assert await soon(outcomes[1]) is SUCCEEDED


async def test_nor_does_it_if_that_one_ended_in_this_very_moment(engine, gate):
    engine._paces[limited := handler(handlers.obey, timeout=PATIENCE)].note(0)
    late, next_one = begin(engine, limited, order()), hold(engine, gate)
    child = child_of(engine)
    with _opened_while_the_loop_stands_still(gate):  # so it has begun, and the report of the other is unread
        engine._expire(child)
        assert [each.ticket for [each] in engine._waiting] == [next_one]  # it need not wait until the child is dead

    assert isinstance(await soon(late), Failed)
    await _open_until_done(gate, [next_one])  # the first that reads it may be the child that is being killed
    assert next_one.result() is SUCCEEDED


def _opened_while_the_loop_stands_still(gate):
    deadline = time.monotonic() + PATIENCE
    while (pipe := opened_now(gate)) is None:
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
    return pipe


async def _open_until_done(gate, held):
    async with asyncio.timeout(PATIENCE):
        while not all(each.done() for each in held):
            if (pipe := opened_now(gate)) is not None:
                pipe.close()
            await asyncio.sleep(0.01)


# ---------------------------------------------------------------------- who may go ahead


async def test_no_letter_goes_ahead_while_another_child_is_idle_or_starts(all_are_quick, gate):
    engine = ProcessEngine(2)
    assert await run(engine, OBEY, order()) is SUCCEEDED  # one child is enough for that
    held, other = hold(engine, gate), begin(engine, OBEY, order())
    assert [child.ahead for child in engine._children] == [None, None]

    assert await soon(other) is SUCCEEDED  # in the second child, which had to start
    assert await run(engine, OBEY, order()) is SUCCEEDED  # … and is idle now
    assert not held.done()
    (await opened(gate)).close()
    assert await soon(held) is SUCCEEDED
    await engine.close(0)


async def test_each_of_two_busy_children_is_sent_one_letter_ahead(all_are_quick, gate):
    engine = ProcessEngine(2)
    engine.prepare(OBEY)
    assert await comes_true(lambda: len(engine._idle) == 2)
    held = [hold(engine, gate), hold(engine, gate)]
    others = [begin(engine, OBEY, order()) for _ in range(3)]

    assert {child.ahead.ticket for child in engine._children} == set(others[:2])
    await _open_until_done(gate, held)
    assert await soon(asyncio.gather(*others)) == [SUCCEEDED] * 3
    await engine.close(0)


async def test_no_letter_waits_behind_one_of_a_handler_that_may_take_long(gate):
    engine = ProcessEngine(1)
    assert await run(engine, OBEY, order()) is SUCCEEDED  # once is not enough to trust it
    held, other = hold(engine, gate), begin(engine, OBEY, order())

    assert child_of(engine).ahead is None
    assert [each.ticket for [each] in engine._waiting] == [other]
    (await opened(gate)).close()
    assert await soon(asyncio.gather(held, other)) == [SUCCEEDED] * 2
    await engine.close(0)


async def test_a_letter_whose_handler_the_child_has_yet_to_import_is_not_sent_ahead(engine, gate):
    held, other = hold(engine, gate), begin(engine, handler(handlers.succeed))

    assert child_of(engine).ahead is None
    (await opened(gate)).close()
    assert await soon(asyncio.gather(held, other)) == [SUCCEEDED] * 2


async def test_no_letter_waits_for_the_import_of_another_handler(engine):
    engine._paces[quick_elsewhere := handler(handlers.succeed)].note(0)
    outcomes = [begin(engine, quick_elsewhere), begin(engine, OBEY, order())]

    assert child_of(engine).ahead is None
    assert await soon(asyncio.gather(*outcomes)) == [SUCCEEDED] * 2


# ---------------------------------------------------------------------- letters that are hard to send


async def test_a_letter_that_cannot_be_sent_ahead_has_failed_and_disturbs_nobody(engine, gate):
    held, unsendable = hold(engine, gate), begin(engine, OBEY, letter(metadata={"n": 2**70}))
    assert isinstance(unsendable.result(), Failed)
    assert engine._idle == []

    other = begin(engine, OBEY, order())
    (await opened(gate)).close()
    assert await soon(asyncio.gather(held, other)) == [SUCCEEDED] * 2


async def test_a_large_letter_goes_ahead_without_blocking_the_loop(engine, gate):
    weigh, large = handler(handlers.check_size), letter(b"x" * 64_000_000, content_type="application/octet-stream")
    assert await run(engine, weigh, large) is SUCCEEDED
    outcomes = [hold(engine, gate), begin(engine, weigh, large), begin(engine, OBEY, order())]
    assert child_of(engine).ahead.ticket is outcomes[1]
    (await opened(gate)).close()

    assert await soon(asyncio.gather(*outcomes)) == [SUCCEEDED] * 3


async def test_nothing_is_sent_ahead_while_a_large_letter_is_still_on_its_way(engine):
    weigh, large = handler(handlers.check_size), letter(b"x" * 64_000_000, content_type="application/octet-stream")
    assert await run(engine, weigh, large) is SUCCEEDED
    outcomes = [begin(engine, weigh, large), begin(engine, OBEY, order())]
    assert child_of(engine).ahead is None

    assert await soon(asyncio.gather(*outcomes)) == [SUCCEEDED] * 2


# ---------------------------------------------------------------------- ending


async def test_interrupt_stops_what_was_sent_ahead_and_nothing_begins_after_it(engine, gate, tmp_path):
    begun = tmp_path / "begun"
    outcomes = [hold(engine, gate), *(begin(engine, OBEY, order(note=begun, name="x")) for _ in range(2))]
    with await opened(gate):
        engine.interrupt()

        assert [type(outcome.result()) for outcome in outcomes] == [Interrupted] * 3
        await soon(engine.close(0))
    assert (engine._children, engine._dying, [*engine._waiting]) == (set(), set(), [])
    assert not begun.exists()


async def test_close_waits_for_what_was_sent_ahead_too(engine, gate):
    outcomes = [hold(engine, gate), begin(engine, OBEY, order())]
    closing = asyncio.ensure_future(engine.close(PATIENCE))
    (await opened(gate)).close()
    await soon(closing)

    assert [outcome.result() for outcome in outcomes] == [SUCCEEDED] * 2


async def test_of_many_quick_letters_among_which_some_are_poison_each_has_its_own_outcome():
    engine = ProcessEngine(2)
    outcomes = [begin(engine, OBEY, order(die=number % 150 == 149)) for number in range(600)]

    assert await soon(asyncio.gather(*outcomes)) == [
        DIED if number % 150 == 149 else SUCCEEDED for number in range(600)
    ]
    await engine.close(0)
