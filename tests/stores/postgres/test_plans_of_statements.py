"""The planner may have old statistics: a claim or a settlement still looks only at its own letters."""

from __future__ import annotations

from tests.stores.samples import DELIVERED, KIND, LEASE, OPERATOR, QUEUE, WORKER, draft, failure

from redrive.core.plan import Plan
from redrive.stores.contract import Retention, Want
from redrive.stores.postgres.desk.lensing import lens_sql

READ = "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE indexrelname = 'outbox_lease'"
READ_BY_ANY = "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'outbox'"
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


async def test_after_a_clean_up_settling_still_looks_up_only_its_own_letters(store, connection):
    await store.put([draft(f"old {n}") for n in range(3_000)])
    claims = await store.claim([Want(QUEUE, (KIND,), 3_000)], lease=LEASE, worker=WORKER)
    await store.settle([(claim, DELIVERED) for claim in claims])
    await store.retain(Retention(delivered=0.0))
    await connection.execute("VACUUM (ANALYZE, TRUNCATE false) redrive.outbox")  # many pages and no letter, it says
    await store.put([draft(str(n)) for n in range(3_000)])
    claims = await store.claim([Want(QUEUE, (KIND,), 3_000)], lease=LEASE, worker=WORKER)
    await store._server.ask(lambda own, _: own.execute(FLUSH))
    before = await connection.fetchval(READ_BY_ANY)
    for start in range(0, 1_000, 100):
        await store.settle([(claim, DELIVERED) for claim in claims[start : start + 100]])
    await store._server.ask(lambda own, _: own.execute(FLUSH))
    assert await connection.fetchval(READ_BY_ANY) - before <= 3_000


async def test_the_letters_of_a_plan_are_found_by_their_own_index(store, connection):
    await store.put([draft(str(n), failure=failure()) for n in range(2_000)])
    plan = Plan(id="few", verb="replay", query="status:failed", limit=5, **OPERATOR)
    await store.step((await store.start_plan(plan)).id, limit=100)
    await connection.execute("ANALYZE redrive.outbox")
    asked = "EXPLAIN SELECT seq FROM redrive.outbox WHERE plan = ANY ('{few}'::text[]) ORDER BY seq DESC LIMIT 50"
    assert "outbox_plan" in "\n".join(row[0] for row in await connection.fetch(asked))


async def test_a_lens_walks_only_failed_letters_and_no_writer_waits_for_it(store, connection):
    await store.put([draft(str(n)) for n in range(2_000)])
    await store.put([draft(f"dead {n}", origin=f"a/{n}", failure=failure()) for n in range(5)])
    await connection.execute("ANALYZE redrive.outbox")
    sql = lens_sql("origin", '"redrive"', "status IN ('failed')", 1)
    plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {sql}", 50))
    async with connection.transaction():
        [found] = await connection.fetch(sql, 50)
        modes = await connection.fetch("SELECT DISTINCT mode FROM pg_locks WHERE relation = 'redrive.outbox'::regclass")
        await store.put([draft("new", origin="a/new", failure=failure())])  # while the lens's transaction is open

    assert "outbox_failed_" in plan
    assert (found["value"], found["letters"]) == ("a", 5)
    assert [row["mode"] for row in modes] == ["AccessShareLock"]
