"""Events with several handlers: a letter for each, made in one transaction."""

from __future__ import annotations

import asyncio

import pytest
from tests.stores.held_up import held_up_by

from redrive import Redrive, RetryPolicy
from redrive.core.query import parse
from redrive.errors import NotSupported, QueueFull, SourceError
from redrive.stores.contract import QueueSpec, Subscription

EVENT = "order.paid"


async def subscribe(app, *handlers: str, queue: str = "default") -> None:
    for handler in handlers:
        await app.store.subscribe(Subscription(event=EVENT, handler=handler, queue=queue), by="test")


async def run(app) -> None:
    await app.run(until_idle=True, signals=False)


async def test_each_subscriber_gets_a_letter_of_its_own_and_the_event_is_delivered(app):
    seen = []
    app.add_handler("receipt.send", lambda payload: seen.append(("receipt", payload)))
    app.add_handler("stock.reserve", lambda payload: seen.append(("stock", payload)), queue="stock")
    await subscribe(app, "receipt.send")
    await subscribe(app, "stock.reserve", queue="stock")
    event = await app.enqueue(EVENT, {"order": 17}, idempotency_key="k", tenant="ACME", priority="high")
    await run(app)
    assert sorted(seen, key=str) == [("receipt", {"order": 17}), ("stock", {"order": 17})]
    assert (await app.desk.show(event.id)).status == "delivered"
    letters = {letter.kind: letter for letter in (await app.desk.ls("-kind:order.paid")).letters}
    assert {letter.queue for letter in letters.values()} == {"default", "stock"}
    child = letters["stock.reserve"]
    assert (child.idempotency_key, child.handler, child.tenant, child.priority) == ("k", "stock.reserve", "ACME", 0)
    assert child.origin == f"event:{event.id}"


async def test_a_failing_handler_is_retried_and_replayed_alone(app):
    seen, broken = [], [True]

    def stock(payload) -> None:
        seen.append("stock")
        if broken:
            raise RuntimeError("no stock")

    app.add_handler("receipt.send", lambda payload: seen.append("receipt"))
    app.add_handler("stock.reserve", stock, policy=RetryPolicy.immediate(max_attempts=2))
    await subscribe(app, "receipt.send", "stock.reserve")
    await app.enqueue(EVENT, 17)
    await run(app)
    assert sorted(seen) == ["receipt", "stock", "stock"]
    broken.clear()
    await app.desk.replay(query="status:failed")
    await run(app)
    assert sorted(seen) == ["receipt", "stock", "stock", "stock"]


async def test_an_event_without_subscribers_stays_pending_and_is_seen_as_orphaned(app):
    app.add_handler("receipt.send", lambda payload: None)
    await subscribe(app, "receipt.send")
    await app.store.unsubscribe(EVENT, "receipt.send", by="test")
    event = await app.enqueue(EVENT, 17)
    await run(app)
    assert (await app.desk.show(event.id)).status == "pending"
    assert (await app.desk.stats()).orphaned == {"default": {EVENT: 1}}
    await subscribe(app, "receipt.send")
    await run(app)
    assert (await app.desk.show(event.id)).status == "delivered"


async def test_a_letter_with_a_target_is_no_event(app):
    await subscribe(app, "receipt.send")
    draft = app.draft(EVENT, 17)
    await app.store.put([type(draft)(id=draft.id, queue="default", kind=EVENT, payload=b"17", handler="somebody")])
    assert await app.store.broadcast() == []


async def test_several_at_once_make_one_letter_of_each(app):
    await subscribe(app, "receipt.send")
    await app.enqueue_many([app.draft(EVENT, n) for n in range(50)])
    await asyncio.gather(*(app.store.broadcast(10) for _ in range(4)))
    while await app.store.broadcast(10):
        pass
    assert sorted(letter.payload for letter in (await app.desk.ls("kind:receipt.send", limit=100)).letters) == sorted(
        str(n).encode() for n in range(50)
    )


async def test_events_of_a_key_keep_their_order_in_ordered_queues(app):
    await app.store.declare([QueueSpec(name="events", ordered=True), QueueSpec(name="line", ordered=True)])
    seen = []
    app.add_handler("receipt.send", seen.append, queue="line")
    await subscribe(app, "receipt.send", queue="line")
    await app.enqueue_many([app.draft(EVENT, n, queue="events", key="k") for n in range(5)])
    await run(app)
    assert seen == list(range(5))


async def test_an_open_transaction_of_the_same_key_keeps_no_broadcast_waiting(app, connection):
    await app.store.declare([QueueSpec(name="line", ordered=True)])
    await subscribe(app, "receipt.send", queue="line")
    await app.enqueue(EVENT, 1, key="k")
    await app.enqueue(EVENT, 2, key="other")
    async with connection.transaction():
        await app.outbox(connection).enqueue("receipt.send", 0, queue="line", key="k")
        assert sum(spread.events for spread in await app.store.broadcast()) == 1
    assert sum(spread.events for spread in await app.store.broadcast()) == 1


async def test_paused_and_full_queues_hold_events_back(app):
    await app.store.declare([QueueSpec(name="small", max_size=1)])
    await subscribe(app, "receipt.send", queue="small")
    await app.enqueue("receipt.send", 0, queue="small")
    await app.enqueue(EVENT, 1)
    assert await app.store.broadcast() == []
    await app.store.declare([QueueSpec(name="small")])
    await app.desk.pause("default")
    assert await app.store.broadcast() == []
    await app.desk.resume("default")
    assert await app.store.broadcast()


async def test_a_subscribers_queue_is_filled_up_to_its_max_size_and_no_further(app, connection):
    await app.store.declare([QueueSpec(name="small", max_size=5)])
    await subscribe(app, "receipt.send", "stock.reserve", queue="small")
    for n in range(9):
        await app.enqueue(EVENT, n, priority=("high", "medium", "low")[n % 3])
    assert sum(spread.letters for spread in await app.store.broadcast()) == 4  # two for each event
    assert await app.store.broadcast() == []
    assert await app.store.count(parse("queue:small status:pending")) == 4
    await app.desk.cancel(query="queue:small")
    assert sum(spread.letters for spread in await app.store.broadcast()) == 4


async def test_an_event_with_more_subscribers_than_the_queue_has_room_comes_when_the_queue_is_empty(app):
    await app.store.declare([QueueSpec(name="small", max_size=1)])
    await subscribe(app, "receipt.send", "stock.reserve", queue="small")
    await app.enqueue("receipt.send", 0, queue="small")
    await app.enqueue(EVENT, 1)
    await app.enqueue(EVENT, 2)
    assert await app.store.broadcast() == []
    await app.desk.cancel(query="queue:small")
    assert sum(spread.letters for spread in await app.store.broadcast()) == 2


async def test_a_put_beside_a_broadcast_does_not_overfill_the_queue(app, url, connection):
    """Both count what the other has put: one waits for the other's end."""
    await app.store.declare([QueueSpec(name="small", max_size=1)])
    await subscribe(app, "receipt.send", queue="small")
    await app.enqueue(EVENT, 1)
    async with connection.transaction():
        await connection.execute("SELECT * FROM redrive.outbox_broadcast(100, NULL)")
        putting = asyncio.create_task(app.enqueue("receipt.send", 2, queue="small"))
        await held_up_by(connection, putting)
    with pytest.raises(QueueFull):
        await putting


async def test_events_that_wait_for_their_time_wait(app):
    await subscribe(app, "receipt.send")
    await app.enqueue(EVENT, 17, delay=3600)
    assert await app.store.broadcast() == []


async def test_who_waits_for_an_event_goes_on_when_it_is_broadcast(app):
    await subscribe(app, "receipt.send")
    event = await app.enqueue(EVENT, 17)
    later = await app.enqueue("later", 18, after=[event.id])
    await app.store.broadcast()
    assert (await app.desk.show(later.id)).waits_for == 0


async def test_a_running_worker_broadcasts_soon_after_an_event_arrives(app, connection):
    seen = asyncio.Event()

    @app.handler("receipt.send")
    async def send(payload: int) -> None:
        seen.set()

    await subscribe(app, "receipt.send")
    working = asyncio.create_task(app.run(signals=False))
    async with connection.transaction():
        await app.outbox(connection).enqueue(EVENT, 17)
    await asyncio.wait_for(seen.wait(), 120)
    app.stop()
    await working


# ---------------------------------------------------------------------- subscribing


async def test_what_an_app_declares_is_known_once_it_opens(app, url):
    app.add_handler("receipt.send", lambda payload: None, queue="mail")
    app.subscribe(EVENT, "receipt.send", "stock.reserve")
    await app.close()
    await app.open()
    assert await app.desk.subscriptions() == [
        Subscription(event=EVENT, handler="receipt.send", queue="mail"),
        Subscription(event=EVENT, handler="stock.reserve"),
    ]


async def test_operators_subscribe_and_unsubscribe_and_it_is_written_down(app):
    assert await app.desk.subscribe(EVENT, "receipt.send", queue="mail")
    assert not await app.desk.subscribe(EVENT, "receipt.send", queue="mail")
    assert await app.desk.unsubscribe(EVENT, "receipt.send")
    assert not await app.desk.unsubscribe(EVENT, "receipt.send")
    assert [entry.verb for entry in await app.desk.audit()] == ["unsubscribe", "subscribe"]


async def test_an_event_is_not_its_own_handler(app):
    with pytest.raises(SourceError, match="a kind of its own"):
        await app.desk.subscribe(EVENT, EVENT)


async def test_a_kind_with_a_handler_is_no_event(app):
    app.add_handler(EVENT, lambda payload: None)
    app.subscribe(EVENT, "receipt.send")
    await app.close()
    with pytest.raises(SourceError, match="has a handler of its own"):
        await app.open()


async def test_other_stores_broadcast_nothing():
    app = Redrive("memory://")
    with pytest.raises(NotSupported, match="only PostgreSQL"):
        await app.desk.subscribe(EVENT, "receipt.send")


async def test_an_event_whose_last_subscriber_leaves_while_it_is_broadcast_waits_for_the_next(app, connection):
    await app.store.declare([QueueSpec(name="events", ordered=True)])
    await subscribe(app, "receipt.send")
    event = await app.enqueue(EVENT, 17, key="k", queue="events")
    async with connection.transaction():  # holds the event's lane: by then it is known who has subscribed
        await connection.execute("SELECT redrive.outbox_lock_lanes(ARRAY(SELECT seq FROM redrive.outbox))")
        broadcasting = asyncio.create_task(app.store.broadcast())
        await held_up_by(connection, broadcasting)
        assert await app.store.unsubscribe(EVENT, "receipt.send", by="test")
    assert await broadcasting == []
    assert (await app.desk.show(event.id)).status == "pending"
    await subscribe(app, "stock.reserve")
    assert sum(each.letters for each in await app.store.broadcast()) == 1
    assert (await app.desk.show(event.id)).status == "delivered"
