"""A wake-up reaches the callers that wait, or the next one, whenever it is sent."""

from __future__ import annotations

import asyncio

from redrive.stores.wakeup import Wakeup


async def test_a_wakeup_that_no_caller_waits_for_reaches_the_next():
    wakeup = Wakeup()
    wakeup.send()
    wakeup.send()
    assert await wakeup.wait(0)
    assert not await wakeup.wait(0)


async def test_a_wakeup_reaches_every_caller_that_waits_and_none_afterwards():
    wakeup = Wakeup()
    waiting = [asyncio.ensure_future(wakeup.wait(60)) for _ in range(3)]
    await asyncio.sleep(0)
    wakeup.send()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert not await wakeup.wait(0)


async def test_a_wakeup_just_as_the_time_is_up_is_not_lost(monkeypatch):
    wakeup = Wakeup()

    async def ends(_waiters, **_options):
        wakeup.send()  # by another thread, before we have taken ourselves off its list

    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "wait", ends)
        assert await wakeup.wait(0)
    assert not await wakeup.wait(0)
