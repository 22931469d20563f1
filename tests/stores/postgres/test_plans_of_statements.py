"""Statements are planned from whatever statistics there are; none of them may lead a claim or a settlement astray."""

from __future__ import annotations

from tests.stores.samples import DELIVERED, KIND, LEASE, OPERATOR, QUEUE, WORKER, draft, failure

from redrive.core.plan import Plan
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


async def test_the_letters_of_a_plan_are_found_by_their_own_index(store, connection):
    await store.put([draft(str(n), failure=failure()) for n in range(2_000)])
    plan = Plan(id="few", verb="replay", query="status:failed", limit=5, **OPERATOR)
    await store.step((await store.start_plan(plan)).id, limit=100)
    await connection.execute("ANALYZE redrive.outbox")
    asked = "EXPLAIN SELECT seq FROM redrive.outbox WHERE plan = ANY ('{few}'::text[]) ORDER BY seq DESC LIMIT 50"
    assert "outbox_plan" in "\n".join(row[0] for row in await connection.fetch(asked))
