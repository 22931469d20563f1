"""Statements are planned from whatever statistics there are; none of them may lead a claim or a settlement astray."""

from __future__ import annotations

from tests.stores.samples import DELIVERED, KIND, LEASE, QUEUE, WORKER, draft

from redrive.stores.contract import Want

READ = "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE indexrelname = 'outbox_lease'"
FLUSH = "SELECT pg_stat_force_next_flush()"


async def test_settling_does_not_look_at_other_claims_whatever_the_statistics_say(store, connection):
    await store.put([draft(str(n)) for n in range(1_000)])
    await connection.execute("ANALYZE redrive.outbox")  # nothing is in flight, it says
    before = await connection.fetchval(READ)
    claims = await store.claim([Want(QUEUE, (KIND,), 1_000)], lease=LEASE, worker=WORKER)
    for start in range(0, 1_000, 100):
        await store.settle([(claim, DELIVERED) for claim in claims[start : start + 100]])
    await store._server.ask(lambda own, _: own.execute(FLUSH))
    assert await connection.fetchval(READ) - before <= 1_000
