"""The server did it, and the answer was lost: asked again, it is answered as the first time."""

from __future__ import annotations

import contextlib

import pytest
from tests.stores.postgres.server.proxy import Proxy
from tests.stores.samples import (
    DELIVERED,
    KIND,
    LEASE,
    OPERATOR,
    QUEUE,
    WANT,
    WORKER,
    act,
    claim,
    draft,
    get,
    give_up,
    letter_id,
    lost,
    names,
    put,
    release,
    settle_all,
    status,
)

from redrive.core.letter import Status
from redrive.core.plan import Plan
from redrive.errors import StoreUnavailable
from redrive.stores.contract import Want, books
from redrive.stores.postgres import PostgresStore, exchanging
from redrive.stores.postgres.server import connections


@pytest.fixture
async def wire(store, url):
    """A store whose connection passes a proxy, beside the one that checks the books."""
    async with Proxy(url) as proxy:
        far = PostgresStore(proxy.url, listen=False)
        await far.open()
        far.proxy = proxy
        yield far
        await far.close()


BOUNDARIES = range(6)
TWO = Want(QUEUE, (KIND,), 2)


@pytest.mark.parametrize("boundary", BOUNDARIES)
async def test_a_put_is_no_duplicate_of_itself(wire, store, boundary):
    await put(wire, "warm")
    wire.proxy.lose_answer(boundary)
    for name in "abc":
        [receipt] = await wire.put([draft(name)])
        assert (receipt.id, receipt.duplicate) == (letter_id(name), False)
    assert wire.proxy.cuts or boundary >= 3  # every put has an answer
    assert books(await store.tallies())["enqueued"] == 4


@pytest.mark.parametrize("boundary", BOUNDARIES)
async def test_a_claim_whose_answer_was_lost_is_fetched_again(wire, store, boundary):
    await put(store, *"abc")
    await claim(wire, 0)
    wire.proxy.lose_answer(boundary)
    claimed = [name for _ in range(3) for name in names(await claim(wire, 1))]
    assert claimed == [*"abc"]


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("move", [DELIVERED, give_up()], ids=["delivered", "failed"])
async def test_a_settlement_whose_answer_was_lost_was_accepted(wire, store, boundary, move):
    await put(store, *"abc")
    claims = await claim(wire)
    wire.proxy.lose_answer(boundary)
    for each in claims:
        assert await wire.settle([(each, move)]) == (True,)
        assert await wire.settle([(each, move)]) == (False,)
    assert {str(await status(store, name)) for name in "abc"} == {str(move.to)}


@pytest.mark.parametrize("boundary", BOUNDARIES)
async def test_an_exchange_goes_on_where_it_was(wire, store, boundary):
    await put(store, *"abcdef")
    claims = await claim(wire, 2)
    wire.proxy.lose_answer(boundary)
    run = names(claims)
    while claims:
        settled = [(each, DELIVERED) for each in claims]
        exchanged = await wire.exchange(settled, [TWO], lease=LEASE, worker=WORKER)
        assert all(exchanged.accepted)
        claims = exchanged.claims
        run += names(claims)
    assert run == [*"abcdef"]
    assert books(await store.tallies())["delivered"] == 6


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("patience", [120.0, 0.0])
async def test_an_exchange_on_two_connections_goes_on_where_it_was(wire, store, monkeypatch, boundary, patience):
    monkeypatch.setattr(exchanging, "_MANY", 1)
    monkeypatch.setattr(connections, "PATIENCE", patience)
    await put(store, *"abcdef")
    claims = await claim(wire, 2)
    wire.proxy.lose_answer(boundary)
    run = names(claims)
    for _ in range(8):  # one of them may be lost, and one may find nothing
        settled = [(each, DELIVERED) for each in claims]
        with contextlib.suppress(StoreUnavailable):
            exchanged = await wire.exchange(settled, [TWO], lease=LEASE, worker=WORKER)
            assert all(exchanged.accepted)
            claims = exchanged.claims
            run += names(claims)
    assert sorted(run) == [*"abcdef"]
    assert books(await store.tallies())["delivered"] == 6


@pytest.mark.parametrize("boundary", range(12))
async def test_an_act_is_carried_out_once(wire, store, boundary):
    await put(store, "a")
    await settle_all(store, give_up())
    wire.proxy.lose_answer(boundary)
    assert names(await act(wire, "replay", "a")) == ["a"]
    assert (await get(store, "a")).cycles == 1
    assert len([entry for entry in await store.audit() if entry.verb == "replay"]) == 1


@pytest.mark.parametrize("boundary", range(0, 24, 2))
async def test_a_plan_sends_each_letter_once(wire, store, boundary):
    await put(store, *"abcd")
    await settle_all(store, give_up())
    told = {"id": f"plan-{boundary}", "verb": "replay", "query": "status:failed"}
    await wire.start_plan(Plan(**told, **OPERATOR))
    wire.proxy.lose_answer(boundary)
    acted = [each for _ in range(3) for each in (await wire.step(told["id"], limit=2)).acted]
    assert acted == [letter_id(name) for name in "abcd"]
    assert {(await get(store, name)).cycles for name in "abcd"} == {1}


@pytest.mark.parametrize("boundary", range(12))
async def test_a_letter_that_was_taken_is_not_in_flight_without_a_claim(wire, store, boundary):
    await put(store, "a")
    wire.proxy.lose_answer(boundary)
    claimed = await wire.take(letter_id("a"), lease=LEASE, worker=WORKER)
    assert names([claimed]) == ["a"]
    assert claimed.letter.worker == WORKER
    assert await store.settle([(claimed, DELIVERED)]) == (True,)


async def test_handled_is_noted_once_however_often_it_is_asked(wire):
    wire.proxy.lose_answer(3)
    assert await wire.handled("mail", "key")
    assert not await wire.handled("mail", "key")


async def test_a_worker_that_gave_up_waiting_gets_its_claims_with_the_next_exchange(wire, store, monkeypatch):
    await put(store, *"ab")
    [first] = await claim(wire, 1)
    monkeypatch.setattr(connections, "PATIENCE", 0.0)
    wire.proxy.lose_answer()
    with pytest.raises(StoreUnavailable):
        await wire.exchange([(first, DELIVERED)], [WANT], lease=LEASE, worker=WORKER)
    exchanged = await wire.exchange([(first, DELIVERED)], [WANT], lease=LEASE, worker=WORKER)
    assert exchanged.accepted == (True,)
    assert names(exchanged.claims) == ["b"]
    assert await status(store, "a") is Status.DELIVERED


@pytest.mark.parametrize("boundary", BOUNDARIES)
async def test_a_release_whose_answer_was_lost_is_no_answer_to_the_sweep_that_came_too_late(
    wire, store, monkeypatch, boundary
):
    monkeypatch.setattr(connections, "PATIENCE", 0.0)
    await put(store, "a")
    [held] = await claim(wire)
    wire.proxy.lose_answer(boundary)
    accepted = []
    for move in (release(), lost(), release()):
        with contextlib.suppress(StoreUnavailable):
            accepted += [move.why] * sum(await wire.settle([(held, move)]))
    assert accepted == [(await get(store, "a")).why], "a claim comes to one thing, and that is what is said"
