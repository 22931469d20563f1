"""Letters that wait for dead ones, in a worker."""

from __future__ import annotations

import pytest

from redrive import RetryPolicy

WORDS = {"wait": "pending", "run": "delivered", "fail": "failed"}


@pytest.mark.parametrize("word", WORDS)
async def test_a_worker_ends_idle_after_it_did_what_waiting_letters_say(app, driven, word):
    @app.handler("bad", policy=RetryPolicy.NEVER)
    async def fail(order: dict) -> None:
        raise ValueError("no")

    ran = []

    @app.handler("next")
    async def note(order: dict) -> None:
        ran.append(order)

    async with driven(app) as test:
        first = await app.enqueue("bad", {})
        second = await app.enqueue("next", {}, after=[first.id], after_failure=word)
        await test.run_until_idle()
        await test.tick()
        assert (await test.letter(second.id)).status == WORDS[word]
        assert len(ran) == (word == "run")


async def test_until_idle_leaves_none_of_them_behind(app, tmp_path):
    app = type(app)(f"sqlite:///{tmp_path}/redrive.db")

    @app.handler("bad", policy=RetryPolicy.NEVER)
    async def fail(order: dict) -> None:
        raise ValueError("no")

    async with app:
        first = await app.enqueue("bad", {})
        second = await app.enqueue("bad", {}, after=[first.id], after_failure="run")
        third = await app.enqueue("bad", {}, after=[second.id], after_failure="fail")
        assert await app.run(until_idle=True, signals=False)
        told = [(await app.store.get(each.id)).error_type for each in (second, third)]
        assert told == ["ValueError", "DependencyFailed"]
