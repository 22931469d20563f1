"""One thread writes: callers share commits, and a broken operation is nobody else's problem."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from tests.stores.samples import DELIVERED, WORKER, check_books, claim, draft, give_up, letter_id, names, put

from redrive.core.query import parse
from redrive.errors import QueueFull, StoreClosed, StoreError
from redrive.stores.clock import SystemStoreClock
from redrive.stores.contract import QueueSpec, WorkerBeat
from redrive.stores.sqlite import SqliteStore


async def test_callers_that_wait_at_the_same_time_share_commits(path, sql):
    store = SqliteStore(path, clock=SystemStoreClock())
    await store.open()
    await asyncio.gather(*(store.put([draft(str(number))]) for number in range(256)))
    [(moments,)] = sql("SELECT count(DISTINCT created_us) FROM letters")  # one instant a transaction
    assert moments < 64
    await store.close()


async def test_what_one_round_of_the_loop_hands_in_is_one_commit(path, sql):
    store = SqliteStore(path, clock=SystemStoreClock())
    await store.open()
    ran = threading.Event()
    store._calls.writer.submit(lambda _transaction: ran.set())
    assert not ran.wait(0.05)  # the round has not ended: the thread is not woken yet
    await asyncio.gather(*(store.put([draft(str(number))]) for number in range(60)))
    assert ran.is_set()
    assert sql("SELECT count(DISTINCT created_us) FROM letters") == [(1,)]
    await store.close()


async def test_a_round_that_hands_in_very_much_is_several_commits_so_that_signs_of_life_get_between(path, sql):
    store = SqliteStore(path, clock=SystemStoreClock())
    await store.open()
    await asyncio.gather(*(store.put([draft(str(number))]) for number in range(2_000)))
    [(moments,)] = sql("SELECT count(DISTINCT created_us) FROM letters")
    assert moments >= 2_000 / 576
    await store.close()


async def test_an_operation_that_breaks_does_not_take_its_neighbours_with_it(sqlite):
    def broken(transaction):
        transaction.sql("DELETE FROM letters")
        raise ZeroDivisionError

    await put(sqlite, "kept")
    puts = [asyncio.ensure_future(sqlite.put([draft(str(number))])) for number in range(10)]
    failing = sqlite._calls.writer.submit(broken)
    more = [asyncio.ensure_future(sqlite.put([draft(f"more {number}")])) for number in range(10)]
    with pytest.raises(ZeroDivisionError):
        await failing
    await asyncio.gather(*puts, *more)
    assert len((await sqlite.find(parse(""))).letters) == 21
    await check_books(sqlite)


async def test_an_operation_that_is_refused_does_not_take_its_neighbours_with_it(sqlite):
    await sqlite.declare([QueueSpec(name="small", max_size=1)])
    results = await asyncio.gather(
        *(sqlite.put([draft(f"s{number}", queue="small")]) for number in range(5)),
        *(sqlite.put([draft(f"w{number}")]) for number in range(5)),
        return_exceptions=True,
    )
    assert [isinstance(result, QueueFull) for result in results] == [False, True, True, True, True] + [False] * 5
    await check_books(sqlite)


async def test_one_id_put_by_many_at_once_is_one_letter(sqlite):
    receipts = await asyncio.gather(*(sqlite.put([draft("a"), draft(f"own {n}")]) for n in range(20)))
    assert sum(not first.duplicate for first, _ in receipts) == 1
    assert not any(second.duplicate for _, second in receipts)
    assert len((await sqlite.find(parse(""))).letters) == 21
    await check_books(sqlite)


async def test_a_letter_put_in_the_same_transaction_as_a_claim_is_seen_by_it(sqlite):
    putting = asyncio.ensure_future(sqlite.put([draft("a")]))
    claiming = asyncio.ensure_future(claim(sqlite))
    await putting
    assert names(await claiming) == ["a"]


async def test_closing_finishes_what_was_handed_in(path, clock):
    store = SqliteStore(path, clock=clock)
    await store.open()
    puts = [asyncio.ensure_future(store.put([draft(str(number))])) for number in range(100)]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*puts)
    again = SqliteStore(path, clock=clock)
    await again.open()
    assert len(await claim(again, 1_000)) == 100
    await again.close()


async def test_a_letter_remembers_only_its_newest_tries_and_cycles(sqlite):
    await put(sqlite, "a")
    for _ in range(25):
        [taken] = await claim(sqlite)
        await sqlite.settle([(taken, give_up())])
        await sqlite.act("replay", [letter_id("a")], by="ada", reason="again")
    letter = await sqlite.get(letter_id("a"))
    assert (letter.cycles, len(letter.failure_history)) == (25, 20)


async def test_a_letter_too_large_for_the_file_is_refused_alone(sqlite):
    import apsw  # noqa: PLC0415

    sqlite._calls.connections.writing.limit(apsw.SQLITE_LIMIT_LENGTH, 100_000)
    results = await asyncio.gather(
        *(sqlite.put([draft(f"w{number}")]) for number in range(5)),
        sqlite.put([draft("large", payload=b"x" * 200_000)]),
        return_exceptions=True,
    )
    assert [isinstance(result, StoreError) for result in results] == [False] * 5 + [True]
    assert "send a reference" in str(results[-1])
    await check_books(sqlite)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_writer_that_dies_leaves_nobody_waiting(path, clock):
    store = SqliteStore(path, clock=clock)
    await store.open()

    def deadly():
        raise KeyboardInterrupt

    store._calls.writer._ring = deadly
    with contextlib.suppress(StoreClosed):
        await asyncio.wait_for(store.put([draft("a")]), 60)
    with pytest.raises(StoreClosed):
        await asyncio.wait_for(store.put([draft("b")]), 60)
    await store.close()


async def test_who_holds_a_letter_is_known_while_it_is_in_flight_and_forgotten_afterwards(sqlite, sql):
    await put(sqlite, "a", "b")
    [first, second] = await claim(sqlite)
    assert (await sqlite.get(letter_id("a"))).worker == WORKER
    await sqlite.settle([(first, DELIVERED)])
    assert (await sqlite.get(letter_id("a"))).worker is None
    await sqlite.extend(WorkerBeat(name=WORKER, kinds=("k",)), [second], lease=60)
    assert sql("SELECT worker FROM holders") == [(WORKER,)], "one letter of that claim is still in flight"
    await sqlite.settle([(second, DELIVERED)])
    await sqlite.extend(WorkerBeat(name=WORKER, kinds=("k",)), [], lease=60)
    assert sql("SELECT worker FROM holders") == []


async def test_who_hands_in_work_while_another_thread_closes_the_store_is_refused_and_does_not_wait_for_ever(
    path, clock
):
    store = SqliteStore(path, clock=clock)
    await store.open()
    writer = store._calls.writer
    await store.close()
    writer._closing = False  # as a caller saw it that was a moment earlier
    with pytest.raises(StoreClosed):
        await asyncio.wait_for(writer.submit(lambda _turn: None), 60)
    with pytest.raises(StoreClosed):
        await asyncio.wait_for(writer.submit(lambda _turn: None, urgent=True), 60)
