"""Letters of a kind that nobody handles: never claimed, never tried, shown as orphaned."""

from __future__ import annotations

import pytest

from redrive import Redrive, Status
from redrive.core.facts import Orphaned
from redrive.testing import Drive


@pytest.fixture
def app():
    app = Redrive("memory://")
    app.add_handler("order.created", lambda order: None)
    return app


async def test_an_unknown_kind_is_never_claimed_and_spends_no_attempt(app, driven):
    async with driven(app) as test:
        receipt = await app.enqueue("order.lost", {})
        await app.enqueue("order.created", {})
        await test.run_until_idle()
        letter = await test.letter(receipt.id)
        assert (letter.status, letter.attempts, letter.tries) == (Status.PENDING, 0, ())
        assert len(await test.letters("status:delivered")) == 1


async def test_it_is_counted_as_orphaned_and_told(app, driven):
    async with driven(app) as test:
        await app.enqueue_many([app.draft("order.lost", {}) for _ in range(3)])
        await test.tick()
        assert (await app.desk.stats()).orphaned == {"default": {"order.lost": 3}}
        assert Orphaned(queue="default", kind="order.lost", count=3) in test.facts


async def test_it_is_not_told_again_with_every_sweep(app, driven, clock):
    async with driven(app) as test:
        await app.enqueue("order.lost", {})
        for _ in range(10):
            clock.advance(5)
            await test.tick()
        assert len([fact for fact in test.facts if isinstance(fact, Orphaned)]) == 1


async def test_it_runs_once_somebody_handles_it(app, driven):
    async with driven(app) as test:
        receipt = await app.enqueue("order.lost", {})
        await test.run_until_idle()
        later = Redrive("memory://", store=test.store, clock=test.clock)
        later.add_handler("order.lost", lambda order: None)
        second = Drive(later.parts(), test.store, test.clock, [])
        await second.run_until_idle()
        letter = await test.letter(receipt.id)
        assert (letter.status, letter.attempts) == (Status.DELIVERED, 1)
        assert (await app.desk.stats()).orphaned == {}
        await second.close()


async def test_what_another_live_worker_handles_is_no_orphan(app, driven):
    async with driven(app) as test:
        later = Redrive("memory://", store=test.store, clock=test.clock)
        later.add_handler("order.lost", lambda order: None)
        second = Drive(later.parts(), test.store, test.clock, [])
        await second.worker.attend()
        await app.enqueue("order.lost", {})
        await test.tick()
        assert (await app.desk.stats()).orphaned == {}
        assert not [fact for fact in test.facts if isinstance(fact, Orphaned)]
        await second.close()


async def test_delivered_and_failed_letters_of_an_old_kind_are_no_orphans(app, driven):
    async with driven(app) as test:
        await app.enqueue("order.created", {})
        await test.run_until_idle()
        assert (await app.desk.stats()).orphaned == {}
        assert not [fact for fact in test.facts if isinstance(fact, Orphaned)]


async def test_a_letter_in_a_queue_from_which_nobody_takes_its_kind_is_an_orphan(driven):
    app = Redrive("memory://")
    app.add_handler("order.created", lambda order: None, queue="orders")
    async with driven(app) as test:
        await app.enqueue("order.created", {}, queue="other")
        await app.enqueue("order.created", {})
        await test.run_until_idle()
        await test.tick()
        assert (await app.desk.stats()).orphaned == {"other": {"order.created": 1}}
        told = [fact for fact in test.facts if isinstance(fact, Orphaned)]
        assert told == [Orphaned(queue="other", kind="order.created", count=1)]
