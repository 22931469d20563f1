"""The bell: what rings is heard, whenever it rings."""

from __future__ import annotations

import asyncio

from redrive.stores.bell import Bell


async def test_a_bell_that_nobody_waits_for_is_heard_by_the_next():
    bell = Bell()
    bell.ring()
    bell.ring()
    assert await bell.wait(0)
    assert not await bell.wait(0)


async def test_everybody_who_waits_hears_it_and_nobody_afterwards():
    bell = Bell()
    waiting = [asyncio.ensure_future(bell.wait(60)) for _ in range(3)]
    await asyncio.sleep(0)
    bell.ring()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert not await bell.wait(0)


async def test_a_ring_just_as_the_time_is_up_is_not_lost(monkeypatch):
    bell = Bell()

    async def ends(_waiters, **_options):
        bell.ring()  # by another thread, before we have taken ourselves off its list

    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "wait", ends)
        assert await bell.wait(0)
    assert not await bell.wait(0)
