"""A handler of `kafka.*` runs every kind that begins so, also one that nobody had thought of."""

from __future__ import annotations


async def test_letters_of_kinds_that_appear_while_a_worker_runs_are_handled(app, driven):
    seen = []

    @app.handler("kafka.*", queue="kafka")
    async def any_topic(letter_payload: str):
        seen.append(letter_payload)

    async with driven(app) as test:
        await app.enqueue("kafka.orders", "orders", queue="kafka")
        await test.run_until_idle()
        await app.enqueue("kafka.invoices", "invoices", queue="kafka")
        await test.run_until_idle()
        assert len(await test.letters("status:delivered kind:kafka.orders")) == 1
        assert len(await test.letters("status:delivered kind:kafka.*")) == 2
    assert seen == ["orders", "invoices"]


async def test_the_longest_beginning_wins_and_a_kind_with_a_handler_of_its_own_keeps_it(app, driven):
    seen = []
    for kind in ("kafka.*", "kafka.eu.*", "kafka.eu.orders"):
        app.add_handler(kind, lambda payload, kind=kind: seen.append((kind, payload)), queue="kafka")
    async with driven(app) as test:
        for kind in ("kafka.us", "kafka.eu.invoices", "kafka.eu.orders"):
            await app.enqueue(kind, kind, queue="kafka")
        await test.run_until_idle()
    assert sorted(seen) == [
        ("kafka.*", "kafka.us"), ("kafka.eu.*", "kafka.eu.invoices"), ("kafka.eu.orders", "kafka.eu.orders"),
    ]  # fmt: skip


async def test_other_queues_and_other_beginnings_are_left_alone(app, driven):
    seen = []

    @app.handler("kafka.*", queue="kafka")
    async def any_topic(payload: str):
        seen.append(payload)

    async with driven(app) as test:
        await app.enqueue("kafka.orders", "another queue")
        await app.enqueue("kafka", "without a topic", queue="kafka")
        await app.enqueue("kafkaesque", "another word", queue="kafka")
        await test.run_until_idle()
        assert len(await test.letters("status:pending")) == 3
    assert seen == []


async def test_other_workers_hear_at_once_which_kinds_were_met(app, in_memory):
    @app.handler("kafka.*", queue="kafka")
    async def any_topic(payload: str):
        pass

    async with in_memory(app) as test:
        await app.enqueue("kafka.orders", "o", queue="kafka")
        await test.run_until_idle()
        [worker] = await app.store.workers()
        assert worker.handles("kafka", "kafka.orders")


async def test_a_kind_that_a_handler_of_many_covers_is_never_told_as_an_orphan(app, in_memory, caplog):
    @app.handler("kafka.*", queue="kafka")
    async def any_topic(payload: str):
        pass

    async with in_memory(app) as test:
        await app.enqueue("kafka.orders", "o", queue="kafka")
        await test.run_until_idle()
    assert "orphaned" not in caplog.text
