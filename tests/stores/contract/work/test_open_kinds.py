"""Handlers of many kinds, on every store: the kinds of pending letters are found, and claimed by their exact names."""

from __future__ import annotations

from redrive import Redrive


async def test_a_worker_with_a_handler_of_many_kinds_drains_all_of_them(store):
    app, seen = Redrive("memory://", store=store, poll_seconds=0.05), []

    @app.handler("kafka.*", queue="kafka")
    async def any_topic(payload: int):
        seen.append(payload)

    for number in range(20):
        await app.enqueue(f"kafka.topic-{number % 4}", number, queue="kafka")
    assert await app.run(until_idle=True, signals=False)
    assert sorted(seen) == list(range(20))
