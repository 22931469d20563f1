"""A cycle of enqueue, claim, settle and replay, cut before every one of its messages: done once, whatever was heard."""

from __future__ import annotations

import pytest
from tests.stores.postgres.server.proxy import Proxy
from tests.stores.samples import DELIVERED, LEASE, WANT, WORKER, act, claim, draft, get, give_up, letter_id

from redrive.core.letter import Status
from redrive.stores.contract import books
from redrive.stores.postgres import PostgresStore

MOST = 400  # a cycle has fewer messages


async def cycle(store, name: str) -> None:
    """Put a letter with a key, let it fail, replay it, deliver it."""
    [receipt] = await store.put([draft(name, idempotency_key=f"key of {name}")])
    assert (receipt.id, receipt.duplicate) == (letter_id(name), False)
    [first] = await claim(store, 1)
    assert first.attempts == 1
    assert await store.settle([(first, give_up())]) == (True,)
    assert [letter.id for letter in await act(store, "replay", name)] == [letter_id(name)]
    [second] = (await store.exchange((), [WANT], lease=LEASE, worker=WORKER)).claims
    assert (second.letter.id, second.attempts) == (letter_id(name), 1)
    exchanged = await store.exchange([(second, DELIVERED)], [WANT], lease=LEASE, worker=WORKER)
    assert exchanged.accepted == (True,)
    assert await store.handled("mail", f"key of {name}")
    assert not await store.handled("mail", f"key of {name}")


@pytest.mark.slow
async def test_a_cut_before_any_message_changes_nothing_of_what_comes_of_it(store, url):
    async with Proxy(url) as proxy:
        far = PostgresStore(proxy.url, listen=False)
        await far.open()
        await cycle(far, "warm")
        for message in range(MOST):
            before, name = proxy.cuts, f"cut before {message}"
            proxy.cut_before(message)
            await cycle(far, name)
            letter = await get(store, name)
            assert (letter.status, letter.cycles, letter.attempts, letter.losses) == (Status.DELIVERED, 1, 1, 0)
            if proxy.cuts == before:
                break
        await far.close()
    assert 30 < message < MOST
    print(f"{message} messages in a cycle")
    kept = books(await store.tallies())
    assert kept["enqueued"] == kept["delivered"] == message + 2
    assert len([entry for entry in await store.audit(limit=MOST) if entry.verb == "replay"]) == message + 2
