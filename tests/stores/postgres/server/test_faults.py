"""A server in trouble: what passes is asked again and costs no letter an attempt; what does not is said."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.stores.postgres.server.proxy import Proxy
from tests.stores.samples import (
    DELIVERED,
    QUEUE,
    WORKER,
    claim,
    draft,
    find_all,
    give_up,
    letter_id,
    names,
    put,
    retry,
    settle_all,
    status,
)

from redrive.app import Redrive
from redrive.core.letter import Letter, Status
from redrive.errors import StoreUnavailable
from redrive.stores.contract import QueueSpec, WorkerBeat
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.server import connections, listening

BEAT = WorkerBeat(name=WORKER, kinds=("mail",))


@pytest.fixture
async def proxy(url):
    async with Proxy(url) as opened:
        yield opened


@pytest.fixture
async def wire(store, proxy):
    """A store whose connections pass a proxy, beside the one that checks the books."""
    far = PostgresStore(proxy.url, listen=False)
    await far.open()
    yield far
    await far.close()


# ---------------------------------------------------------------------- answers that were never heard


@pytest.mark.parametrize("move", [DELIVERED, give_up(), retry(60)], ids=["delivered", "failed", "retried"])
async def test_a_settlement_that_was_never_answered_is_accepted_when_it_is_asked_again(
    wire, proxy, store, move, monkeypatch
):
    await put(store, *"ab")
    first, second = await claim(wire)
    with monkeypatch.context() as patch:
        patch.setattr(connections, "PATIENCE", 0.0)
        proxy.lose_answer()
        with pytest.raises(StoreUnavailable):
            await wire.settle([(first, move)])
    assert await status(store, "a") is move.to  # it was carried out, and nobody heard of it
    assert await wire.settle([(first, move), (second, move)]) == (True, True)
    assert await wire.settle([(first, move), (second, move)]) == (False, False)


async def test_a_settlement_that_was_never_carried_out_is_refused_once_somebody_else_has_the_letter(
    wire, proxy, store, monkeypatch
):
    await put(store, "a")
    [held] = await claim(wire)
    with monkeypatch.context() as patch:
        patch.setattr(connections, "PATIENCE", 0.0)
        proxy.cut_before(0)
        with pytest.raises(StoreUnavailable):
            await wire.settle([(held, DELIVERED)])
    await store.settle([(held, retry())])
    [_] = await claim(store)
    assert await wire.settle([(held, DELIVERED)]) == (False,)


# ---------------------------------------------------------------------- dead wires


async def test_a_line_that_is_dead_without_saying_so_is_made_again(store, proxy, monkeypatch):
    monkeypatch.setattr(listening, "_ASK_AFTER", 0.05)
    monkeypatch.setattr(listening, "_ANSWER_WITHIN", 1.0)
    far = PostgresStore(proxy.url)
    await far.open()
    async with asyncio.timeout(120):
        await far._wire.listening.wait()
        proxy.blackhole()
        while far._wire.listening.is_set():  # noqa: ASYNC110 - nobody tells when it ends
            await asyncio.sleep(0.01)
        await far._wire.listening.wait()
        while await far.wait(0.1):
            pass
        await put(store, "a")
        assert await far.wait(60)
    await far.close()


async def test_letters_are_found_by_polling_while_nobody_hears_of_them(store, proxy):
    far = PostgresStore(proxy.url)
    app = Redrive(store=far, poll_seconds=0.2)
    ran = asyncio.Event()

    async def note(_letter: Letter) -> None:
        ran.set()

    app.add_handler("mail", note, queue=QUEUE)
    await app.open()
    async with asyncio.timeout(120):
        await far._wire.listening.wait()
        proxy.blackhole()  # the listening connection, and the idle ones
        far._server._drop_idle()
        working = asyncio.create_task(app.run(signals=False))
        await put(store, draft("a", kind="mail", payload=b"{}"))
        await ran.wait()
        app.stop()
        await working
    await app.close()
    assert await status(store, "a") is Status.DELIVERED


async def test_a_sign_of_life_does_not_wait_for_a_dead_wire(wire, proxy, store):
    await put(store, "a")
    held = await claim(wire)
    await asyncio.gather(*(wire.tallies() for _ in range(4)))  # several connections lie idle
    proxy.blackhole()
    began = time.monotonic()
    assert await wire.extend(BEAT, held, lease=12) == []
    assert time.monotonic() - began < 12, "by then the lease has ended"


# ---------------------------------------------------------------------- errors of the server's own


INJECT = """
CREATE OR REPLACE FUNCTION redrive.test_inject() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF random() < 0.2 THEN
        RAISE EXCEPTION 'injected' USING ERRCODE = (
            ARRAY['40001', '40P01', '55P03', '57P01', '57014', '53200', '08006'])[1 + floor(random() * 7)::integer];
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER test_inject AFTER INSERT OR UPDATE ON redrive.outbox EXECUTE FUNCTION redrive.test_inject();
CREATE TRIGGER test_inject AFTER INSERT ON redrive.outbox_deltas EXECUTE FUNCTION redrive.test_inject();
"""


async def test_conflicts_and_hiccups_are_asked_again_and_cost_no_letter_an_attempt(url, store, connection):
    app = Redrive(store=PostgresStore(url), poll_seconds=0.05, sweep_seconds=0.2)
    ran: list[tuple[int, int]] = []

    async def mail(letter: Letter) -> None:
        ran.append((letter.attempts, letter.losses))

    app.add_handler("mail", mail, queue=QUEUE)
    await app.open()
    await connection.execute(INJECT)
    try:
        async with asyncio.timeout(300):
            for n in range(60):
                await put(app.store, *(draft(f"{n}-{m}", kind="mail", payload=b"{}") for m in range(5)))
            await app.run(until_idle=True, signals=False)
    finally:
        for table in ("outbox", "outbox_deltas"):
            await connection.execute(f"DROP TRIGGER IF EXISTS test_inject ON redrive.{table}")
        await connection.execute("DROP FUNCTION IF EXISTS redrive.test_inject")
    await app.close()
    assert ran == [(1, 0)] * 300
    assert {letter.attempts for letter in await find_all(store)} == {1}


async def test_a_server_that_takes_no_writes_is_said_to_be_read_only_until_it_takes_them(
    url, store, connection, monkeypatch
):
    monkeypatch.setattr(connections, "PATIENCE", 0.1)
    await put(store, "a")
    try:
        await switch(connection, store, "on")
        with pytest.raises(StoreUnavailable, match="read-only"):
            await put(store, "b")
        with pytest.raises(StoreUnavailable, match="read-only"):
            await claim(store)
        with pytest.raises(StoreUnavailable, match="read-only"):
            await PostgresStore(url).open()
    finally:
        await switch(connection, store, "off")
    await put(store, "b")
    assert names(await claim(store)) == [*"ab"]


async def switch(connection, store, read_only: str) -> None:
    """Tell the server, and wait until the process behind the store's own connection has heard of it."""
    await connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {read_only}")
    await connection.execute("SELECT pg_reload_conf()")
    show = "SHOW default_transaction_read_only"
    async with asyncio.timeout(60):
        while await store._server.ask(lambda own, _again: own.fetchval(show)) != read_only:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# ---------------------------------------------------------------------- a queue that begins to keep order


async def test_a_queue_that_begins_and_ceases_to_keep_order_strands_no_letter(store, url):
    """Letters come and are settled by the old settings while the new ones are written."""
    others = [PostgresStore(url, listen=False) for _ in range(2)]
    for each in others:
        await each.open()
    over = asyncio.Event()

    async def toggle() -> None:
        for n in range(14):
            await others[0].declare([QueueSpec(name=QUEUE, ordered=n % 2 == 0)])
            await asyncio.sleep(0.01)
        over.set()

    async def produce() -> None:
        n = 0
        while not over.is_set():
            n += 1
            await put(others[1], *(draft(f"{n}-{key}", key=key) for key in "abc"))

    async def work() -> None:
        while not over.is_set():
            await settle_all(store, DELIVERED)

    async with asyncio.timeout(300):
        await asyncio.gather(toggle(), produce(), work(), work())
        while await settle_all(store, DELIVERED):
            pass
    assert {letter.status for letter in await find_all(store)} == {Status.DELIVERED}
    for each in others:
        await each.close()


async def test_an_open_transaction_of_a_user_keeps_nobody_waiting_behind_a_new_order(store, url, connection):
    await put(store, draft("a", key="k"))
    sql = "SELECT redrive.outbox_enqueue('order.created', '{}', p_queue => 'work', p_key => 'k')"
    async with connection.transaction():
        await connection.execute(sql)
        declaring = asyncio.create_task(store.declare([QueueSpec(name=QUEUE, ordered=True)]))
        await asyncio.sleep(0.3)
        async with asyncio.timeout(10):  # for as long as the other is asked again
            await put(store, draft("b", key="other"))
            assert letter_id("a") in [each.letter.id for each in await claim(store)]
        assert not declaring.done()
    await declaring
    assert await claim(store) == [], "what the user enqueued stands behind the letter of its key that is under way"
