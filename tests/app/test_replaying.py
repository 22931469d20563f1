"""From a dead letter to its replay, as an application sees it."""

from __future__ import annotations

import pytest

from redrive import Redrive, RetryPolicy, Status
from redrive.core.facts import Archived, Replayed


class Shop:
    """An application whose only handler has a bug until it is fixed."""

    def __init__(self) -> None:
        self.app = Redrive("memory://")
        self.bug = True
        self.ran: list[int] = []
        self.app.add_handler("order.created", self.ship, policy=RetryPolicy.immediate(max_attempts=2))

    async def ship(self, order: dict) -> None:
        self.ran.append(order["n"])
        if self.bug:
            raise OSError("no route")


@pytest.fixture
def shop():
    return Shop()


async def test_a_replay_keeps_id_and_idempotency_key_and_remembers_the_cycle(shop, driven):
    app = shop.app
    async with driven(app) as test:
        receipt = await app.enqueue("order.created", {"n": 1}, idempotency_key="order-1", key="c9", metadata={"a": 1})
        await test.run_until_idle()
        shop.bug = False
        await app.desk.replay(receipt.id, reason="the route is back")
        pending = await test.letter(receipt.id)
        assert (pending.status, pending.attempts, pending.cycles) == (Status.PENDING, 0, 1)
        await test.run_until_idle()
        letter = await test.letter(receipt.id)
        assert (letter.status, letter.attempts) == (Status.DELIVERED, 1)
        assert (letter.id, letter.idempotency_key, letter.key) == (receipt.id, "order-1", "c9")
        again = await app.enqueue("order.created", {"n": 1}, idempotency_key="order-1")
        assert (again.id, again.duplicate) == (receipt.id, True)
    [cycle] = letter.failure_history
    assert (cycle.attempts, cycle.error_type, cycle.last_error) == (2, "OSError", "no route")
    assert (cycle.replayed_by, cycle.reason) == ("app", "the route is back")
    assert len(cycle.tries) == 2
    assert shop.ran == [1, 1, 1]


async def test_a_replay_that_fails_again_is_a_dead_letter_with_two_cycles(shop, driven):
    app = shop.app
    async with driven(app) as test:
        receipt = await app.enqueue("order.created", {"n": 1})
        for _ in range(2):
            await test.run_until_idle()
            await app.desk.replay(receipt.id)
        await test.run_until_idle()
        letter = await test.letter(receipt.id)
    assert (letter.status, letter.attempts, letter.cycles) == (Status.FAILED, 2, 2)
    assert len(letter.failure_history) == 2
    assert len(shop.ran) == 6


async def test_a_replay_by_query_touches_what_matches_and_nothing_else(shop, driven):
    app = shop.app
    async with driven(app) as test:
        await app.enqueue_many([app.draft("order.created", {"n": n}) for n in range(6)])
        await test.run_until_idle()
        shop.bug = False
        await app.desk.replay(query="status:failed payload.n:<3", reason="fixed")
        await test.run_until_idle()
        assert sorted(letter.payload for letter in await test.letters("status:delivered")) == [
            b'{"n":0}', b'{"n":1}', b'{"n":2}'
        ]  # fmt: skip
        assert len(await test.letters("status:failed cycles:0")) == 3


async def test_acts_of_the_applications_desk_are_announced(shop, driven):
    app = shop.app
    async with driven(app) as test:
        receipts = await app.enqueue_many([app.draft("order.created", {"n": n}) for n in range(2)])
        await test.run_until_idle()
        await app.desk.replay(receipts[0].id, reason="fixed")
        await app.desk.archive(receipts[1].id, reason="not needed")
        told = [fact for fact in test.facts if isinstance(fact, (Replayed, Archived))]
        assert [(type(fact), fact.count, fact.by, fact.reason) for fact in told] == [
            (Replayed, 1, "app", "fixed"),
            (Archived, 1, "app", "not needed"),
        ]


async def test_an_edited_payload_is_what_the_next_run_gets(shop, driven):
    app = shop.app
    async with driven(app) as test:
        receipt = await app.enqueue("order.created", {"n": 1})
        await test.run_until_idle()
        letter = await test.letter(receipt.id)
        await app.desk.edit(receipt.id, b'{"n":7}', version=letter.payload_version, reason="a slip")
        shop.bug = False
        await app.desk.replay(receipt.id)
        await test.run_until_idle()
    assert shop.ran == [1, 1, 7]


async def test_a_cancelled_letter_does_not_run_until_it_is_restored(shop, driven):
    app, shop.bug = shop.app, False
    async with driven(app) as test:
        receipt = await app.enqueue("order.created", {"n": 1}, delay=60)
        await app.desk.cancel(receipt.id, reason="hold on")
        await test.run_until_idle()
        assert (shop.ran, (await test.letter(receipt.id)).status) == ([], Status.ARCHIVED)
        await app.desk.restore(receipt.id)
        await test.run_until_idle()
    assert shop.ran == [1]


async def test_the_release_that_failed_is_kept_with_the_failure(driven):
    app = Redrive("memory://", release="1.4.2")

    @app.handler("order.created", policy=RetryPolicy.NEVER)
    async def ship(order: dict):
        raise OSError("no route")

    async with driven(app) as test:
        receipt = await app.enqueue("order.created", {})
        await test.run_until_idle()
        assert (await test.letter(receipt.id)).release == "1.4.2"
        assert len(await test.letters("release:1.4.2")) == 1


async def test_delivered_letters_leave_after_their_retention_and_dead_ones_stay(driven, clock):
    app = Redrive("memory://", retention_delivered_days=1)

    @app.handler("order.created", policy=RetryPolicy.NEVER)
    async def ship(order: dict):
        if order["bad"]:
            raise OSError("no route")

    async with driven(app) as test:
        await app.enqueue("order.created", {"bad": True})
        await app.enqueue("order.created", {"bad": False})
        await test.run_until_idle()
        for _ in range(3):
            clock.advance(86_400)
            await test.tick()
        assert [letter.status for letter in await test.letters()] == [Status.FAILED]
        assert (await app.desk.stats()).books["purged"] == 1
