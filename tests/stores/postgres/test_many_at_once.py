"""Many workers, many stores, a server that throws them out: every letter runs once, and lanes keep order."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

import asyncpg
import pytest
from tests.stores.conftest import server_url
from tests.stores.samples import DELIVERED, KIND, LEASE, QUEUE, claim, draft, letter_id, names, put, retry

from redrive.core.letter import Priority
from redrive.stores.contract import QueueSpec, Want, books
from redrive.stores.postgres import PostgresStore, claiming, exchanging


@pytest.fixture
async def stores(store, url):
    """Four more stores on the same schema, as four processes would have them."""
    opened = [PostgresStore(url, listen=False) for _ in range(4)]
    for each in opened:
        await each.open()
    yield opened
    for each in opened:
        await each.close()


async def work(
    store,
    queue: str,
    limit: int,
    run: list[str],
    key_running: dict,
    all_put: asyncio.Event,
    turns: Counter | None = None,
) -> None:
    """Claim and deliver until everything was put, and nothing is left for a while."""
    worker, settled, idle = f"worker-{id(store)}", [], 0
    while idle < 20 or settled or not all_put.is_set():
        exchanged = await store.exchange(settled, [Want(queue, (KIND,), limit)], lease=LEASE, worker=worker)
        assert all(exchanged.accepted)
        if turns is not None:
            turns[id(store)] += 1
        for each, _ in settled:
            key_running[each.letter.key] = False
        for each in exchanged.claims:
            assert each.letter.key is None or not key_running[each.letter.key]
            key_running[each.letter.key] = True
        run += names(exchanged.claims)
        settled = [(each, DELIVERED) for each in exchanged.claims]
        idle = 0 if settled else idle + 1
        await asyncio.sleep(0.005 if not settled else 0)


async def test_every_letter_runs_once(store, stores):
    all_put = asyncio.Event()
    await put(store, *(str(n) for n in range(600)))
    all_put.set()
    run: list[str] = []
    await asyncio.gather(*(work(each, QUEUE, 17, run, defaultdict(bool), all_put) for each in stores))
    assert sorted(run, key=int) == [str(n) for n in range(600)]
    assert books(await store.tallies())["delivered"] == 600


async def test_what_is_settled_on_one_connection_makes_room_for_claims_on_the_other(store, monkeypatch):
    monkeypatch.setattr(exchanging, "_MANY", 1)
    await store.declare([QueueSpec(name=QUEUE, max_in_flight=2)])
    await put(store, *"abcd")
    settled = [(each, DELIVERED) for each in await claim(store, 2)]
    exchanged = await store.exchange(settled, [Want(QUEUE, (KIND,), 2)], lease=LEASE, worker="worker-1")
    assert exchanged.accepted == (True, True)
    assert names(exchanged.claims) == ["c", "d"]


async def test_of_a_key_one_letter_runs_at_a_time_and_in_order(store, stores):
    await store.declare([QueueSpec(name=QUEUE, ordered=True)])
    run: list[str] = []
    running: defaultdict = defaultdict(bool)
    all_put = asyncio.Event()
    working = [asyncio.create_task(work(each, QUEUE, 5, run, running, all_put)) for each in stores]
    for n in range(20):  # letters arrive while their lanes move
        await put(store, *(draft(f"{key}-{n}", key=key) for key in "abcdefgh"))
    all_put.set()
    await asyncio.gather(*working)
    order = defaultdict(list)
    for name in run:
        key, _, n = name.partition("-")
        order[key].append(int(n))
    assert dict(order) == {key: list(range(20)) for key in "abcdefgh"}


async def test_a_server_that_throws_everybody_out_loses_nothing(store, stores, url):
    await put(store, *(str(n) for n in range(400)))
    run: list[str] = []
    turns = Counter({"put": 0} | {id(each): 0 for each in stores})
    throwing = asyncio.create_task(throw_out(url, turns))
    all_put = asyncio.Event()
    working = [asyncio.create_task(work(each, QUEUE, 7, run, defaultdict(bool), all_put, turns)) for each in stores]
    for n in range(100):
        await put(stores[n % 4], str(400 + n))
        turns["put"] += 1
    all_put.set()
    await asyncio.gather(*working)
    throwing.cancel()
    await asyncio.gather(throwing, return_exceptions=True)
    assert sorted(run, key=int) == [str(n) for n in range(500)]
    assert books(await store.tallies())["delivered"] == 500
    assert turns["thrown out"] > 3


async def throw_out(url: str, turns: Counter) -> None:
    """End all connections each time that everybody has done something since the last: however slow they are."""
    connection, who = await asyncpg.connect(url), list(turns)
    sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> $1"
    try:
        while True:
            before = turns.copy()
            await connection.execute(sql, connection.get_server_pid())
            turns["thrown out"] += 1
            while any(turns[each] == before[each] for each in who):  # noqa: ASYNC110 - they do not tell
                await asyncio.sleep(0.01)
    finally:
        await connection.close()


async def test_shares_hold_across_kinds(store):
    await put(store, *(draft(f"{p}-{k}-{n}", priority=p, kind=k) for p in Priority for k in "xy" for n in range(10)))
    claims = await store.claim([Want(QUEUE, ("x", "y"), 20)], lease=LEASE, worker="w")
    found = [each.letter.priority for each in claims]
    assert [found.count(priority) for priority in Priority] == [12, 6, 2]


# ---------------------------------------------------------------------- hints


async def test_a_letter_due_long_before_those_claimed_last_is_found(store, monkeypatch):
    monkeypatch.setattr(claiming, "_DEAR", 3_600.0)  # on a machine that stalls the first look may take long
    await put(store, *"abcdef")
    assert names(await claim(store, 3)) == [*"abc"]
    await put(store, draft("old", due_us=1))
    assert names(await claim(store)) == ["old", *"def"]


async def test_a_held_transaction_does_not_make_claims_walk_over_what_was_claimed(store, connection, monkeypatch):
    """The remains of claimed letters cannot be cleared away meanwhile: the hint leads past them."""
    monkeypatch.setattr(claiming, "_EVERY", 3_600.0)  # the one claim a second that looks at everything is not meant
    await put(store, *(draft(str(n), due_us=1_000_000 + n) for n in range(3_000)))
    async with connection.transaction(isolation="repeatable_read"):
        await connection.fetchval("SELECT count(*) FROM redrive.outbox")
        for _ in range(29):
            claims = await claim(store, 100)
            await store.settle([(each, DELIVERED) for each in claims])
        before = await read_tuples(store)
        assert len(await claim(store, 100)) == 100
        assert await read_tuples(store) - before < 1_000


async def read_tuples(store) -> int:
    """Return how many entries of the index of due letters were read so far."""
    sql = (
        "SELECT pg_stat_force_next_flush()",
        "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'outbox_due'",
    )

    async def work(connection, _again) -> int:
        await connection.fetchval(sql[0])
        return await connection.fetchval(sql[1])

    return await store._server.ask(work)


# ---------------------------------------------------------------------- counts


async def test_folding_changes_no_count(store, connection):
    await put(store, *"abcd")
    [first, *_] = await claim(store, 2)
    await store.settle([(first, retry())])
    before = sorted(map(repr, await store.tallies()))
    assert await connection.fetchval("SELECT redrive.outbox_fold(5)") == 5
    assert sorted(map(repr, await store.tallies())) == before
    await connection.fetchval("SELECT redrive.outbox_fold(1000)")
    assert sorted(map(repr, await store.tallies())) == before
    assert await connection.fetchval("SELECT count(*) FROM redrive.outbox_deltas") == 0


async def test_a_waiting_worker_of_another_process_is_woken(store, stores):
    listening = PostgresStore(server_url())
    await listening.open()
    async with asyncio.timeout(60):
        await listening._wire.listening.wait()
    waiting = asyncio.create_task(listening.wait(30))
    await asyncio.sleep(0)
    await put(store, "a")
    async with asyncio.timeout(60):
        assert await waiting
    await listening.close()
    assert await store.get(letter_id("a")) is not None
