"""Workers of one generation leave the letters of another alone."""

from __future__ import annotations

from redrive import Redrive


async def test_a_worker_with_a_generation_runs_its_own_letters_and_those_of_none(tmp_path):
    app = Redrive(f"sqlite:///{tmp_path / 'redrive.db'}", generation=2)
    ran = []

    @app.handler("order.created")
    async def ship(order: dict):
        ran.append(order["n"])

    async with app:
        await app.enqueue("order.created", {"n": "old"}, generation=1)
        await app.enqueue("order.created", {"n": "mine"}, generation=2)
        await app.enqueue("order.created", {"n": "any"})
        assert await app.run(until_idle=True, signals=False)
        books = (await app.desk.stats()).books
    assert sorted(ran) == ["any", "mine"]
    assert (books["pending"], books["delivered"]) == (1, 2)
