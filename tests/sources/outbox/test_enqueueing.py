"""Letters in a transaction of the user's own, with every driver."""

from __future__ import annotations

import asyncio
import traceback

import asyncpg
import msgspec
import psycopg
import pytest
import sqlalchemy as sa
from tests.sources.outbox.users import KIND, USERS, set_up_django
from tests.stores.held_up import held_up_by
from tests.stores.samples import OPERATOR, failure

from redrive import Redrive
from redrive.core.letter import Draft
from redrive.errors import DraftError, LetterNotFound, NotSupported, QueueFull, SourceError, StoreUnavailable
from redrive.sources.outbox.face import Destination, Outbox
from redrive.stores.contract import QueueSpec, Want


@pytest.fixture(params=USERS)
def user(request, url, connection):
    return USERS[request.param](url)


async def handled(app) -> list[str]:
    """Run a worker until nothing is left to do, and return what it handled."""
    seen = []

    @app.handler(KIND)
    async def handle(order: str) -> None:
        seen.append(order)

    await app.run(until_idle=True, signals=False)
    return seen


async def test_what_is_committed_is_handled_and_what_is_rolled_back_never_was(app, user, connection):
    kept = await user.pay(app, "17")
    assert await user.pay(app, "18", commit=False) is None
    assert await handled(app) == ["17"]
    assert [row[0] for row in await connection.fetch("SELECT id FROM shop.orders")] == ["17"]
    assert [str(row[0]) for row in await connection.fetch("SELECT id FROM redrive.outbox")] == [kept.id]


async def test_workers_are_woken_after_the_commit(app, user):
    await app.store._wire.listening.wait()
    while await app.store.wait(0.1):
        pass
    await user.pay(app, "17")
    assert await app.store.wait(60)


@pytest.mark.parametrize("user", ["psycopg", "asyncpg", "sqlalchemy-session", "django"], indirect=True)
async def test_nobody_is_woken_by_a_rollback_or_by_who_does_not_want_to(app, user):
    await app.store._wire.listening.wait()
    while await app.store.wait(0.1):
        pass
    await user.pay(app, "17", commit=False)
    await user.pay(app, "18", wake=False)
    assert not await app.store.wait(0.3)


async def test_a_duplicate_is_told_as_one(app, user):
    first = await user.pay(app, "17", idempotency_key="k1")
    again = await user.pay(app, "17", idempotency_key="k1")
    assert (first.duplicate, again.duplicate, again.id) == (False, True, first.id)
    assert await handled(app) == ["17"]


async def test_a_key_that_is_unique_in_its_queue_is_found_under_another_kind(app, user, connection):
    wide = {"idempotency_key": "k1", "unique_in": "queue", "queue": "lane"}
    first = await user.pay(app, "17", **wide)
    again = await app.enqueue("another", "17", **wide)
    assert (first.duplicate, again.duplicate, again.id) == (False, True, first.id)
    async with connection.transaction():
        one, two = await app.outbox(connection).enqueue_many([app.draft(kind, 1, **wide) for kind in ("a", "b")])
    assert (one.id, two.id, one.duplicate, two.duplicate) == (first.id, first.id, True, True)


async def test_many_letters_are_kept_in_their_order_and_duplicates_are_told(app, user, connection):
    known = await user.pay(app, "17", idempotency_key="b")
    receipts = await user.pay(app, "18", keys=["a", "b", None, "a", None], metadata={"n": 1}, headers=[("h", b"\xff")])
    assert [receipt.duplicate for receipt in receipts] == [False, True, False, True, False]
    assert [receipts[1].id, receipts[3].id] == [known.id, receipts[0].id]
    kept = [str(row[0]) for row in await connection.fetch("SELECT id FROM redrive.outbox ORDER BY seq")]
    assert kept == [known.id, receipts[0].id, receipts[2].id, receipts[4].id]
    letter = await app.desk.show(receipts[4].id)
    assert (letter.metadata, letter.headers) == ({"n": 1}, (("h", b"\xff"),))
    assert sorted(await handled(app)) == ["17", "18", "18", "18"]


async def test_many_letters_of_any_text_arrive_and_wait_for_each_other(app, url, connection):
    drafts = [app.draft(KIND, n, key="k" * 1_000, idempotency_key=f"{n} \0 \ud800") for n in range(3)]
    drafts.append(app.draft(KIND, 3, after=[drafts[0].id], delay=5.0, priority="high"))
    async with connection.transaction():
        await app.outbox(connection).enqueue_many(drafts)
    letters = [await app.store.get(draft.id) for draft in drafts]
    assert [letter.key for letter in letters] == ["k" * 1_000] * 3 + [None]
    assert [letter.idempotency_key for letter in letters[:3]] == ["0 \0 \ud800", "1 \0 \ud800", "2 \0 \ud800"]
    assert (letters[3].after, letters[3].waits_for, letters[3].priority) == ((drafts[0].id,), 1, 0)


async def test_an_outbox_goes_through_an_iterator_once_and_has_the_door_of_the_application(app, user, connection):
    async with connection.transaction():
        receipts = await app.outbox(connection).enqueue_many(app.draft(KIND, n) for n in range(10))
    assert len(receipts) == await connection.fetchval("SELECT count(*) FROM redrive.outbox") == 10
    for wrong in ({"key": 12}, {"delay": float("nan")}, {"delay": 1e12}, {"priority": 1}, {"headers": {}}):
        with pytest.raises(DraftError):
            await user.pay(app, "17", **wrong)
    assert await connection.fetchval("SELECT count(*) FROM redrive.outbox") == 10


async def test_the_store_refuses_in_the_same_words(app):
    for wrong, words in (({"key": 12}, "key is 12 and must be text"), ({"after": "x"}, "must be a list of ids")):
        with pytest.raises(DraftError, match=words):
            await app.enqueue(KIND, {}, **wrong)
    assert len(await app.enqueue_many(app.draft(KIND, n) for n in range(3))) == 3


class Counting:
    """A connection that writes down how many letters each statement kept."""

    blocks = True

    def __init__(self) -> None:
        self.batches = []

    def fetch(self, _sql, values):
        count = len(values[0]) if isinstance(values[0], list) else 1
        self.batches.append(count)
        return [(None, "on")] * count

    def after_commit(self, _call):
        return False


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        ([], []),
        ([10], [1]),
        ([10] * 1_000, [1_000]),
        ([10] * 2_001, [1_000, 1_000, 1]),
        ([9 << 20, 9 << 20, 10, 10], [1, 3]),
        ([40 << 20, 10], [1, 1]),
    ],
)
def test_many_letters_are_kept_by_one_statement_unless_they_are_very_many(sizes, batches):
    counting = Counting()
    drafts = [Draft(id=str(n), queue="q", kind=KIND, payload=b"x" * size) for n, size in enumerate(sizes)]
    receipts = Outbox(counting, Destination("redrive", None, None)).enqueue_many(drafts)
    assert counting.batches == batches
    assert [receipt.id for receipt in receipts] == [draft.id for draft in drafts]


async def test_a_full_queue_is_told_in_our_words(app, user):
    app.queue("small", max_size=1)
    await app.close()
    await app.open()
    await user.pay(app, "17", queue="small")
    card = "-".join(["4929"] * 2)
    with pytest.raises(QueueFull, match="holds its maximum of 1") as refused:
        await user.pay(app, card, queue="small")
    assert card not in "".join(traceback.format_exception(refused.value))  # some drivers show what they sent


async def test_a_letter_that_waits_for_nobody_known_is_told_in_our_words(app, user):
    with pytest.raises(LetterNotFound):
        await user.pay(app, "17", after=["0197ffff-0000-7000-8000-000000000000"])


async def test_every_option_and_any_text_arrives(app, user):
    said = {
        "queue": "a \0 queue",
        "key": "k" * 1_000,
        "idempotency_key": "\ud800",
        "tenant": "ACME",
        "priority": "high",
        "policy": "linear",
        "headers": [("a", b"\xff")],
        "metadata": {"n": 1},
        "delay": 3600,
    }
    receipt = await user.pay(app, "17", **said)
    letter = await app.desk.show(receipt.id)
    assert (letter.queue, letter.key, letter.idempotency_key) == ("a \0 queue", "k" * 1_000, "\ud800")
    assert (letter.tenant, letter.priority, letter.headers, letter.metadata) == ("ACME", 0, (("a", b"\xff"),), {"n": 1})
    assert letter.policy.startswith("linear")
    assert letter.origin == "outbox"
    assert 3590 < (letter.due_at - letter.created_at).total_seconds() <= 3600


async def test_the_row_is_the_one_that_the_store_itself_writes(app, user, connection):
    await user.pay(app, "17", key="k", wake=False)
    await app.enqueue(KIND, "17", key="k", origin="outbox")
    rows = [dict(row) for row in await connection.fetch("SELECT * FROM redrive.outbox ORDER BY seq")]
    differ = {name for name in rows[0] if rows[0][name] != rows[1][name]}
    assert differ <= {"seq", "token", "act", "id", "due_at", "occurred_at", "cycle_at", "updated_at"}
    assert all(row["due_at"] == row["occurred_at"] == row["cycle_at"] for row in rows)


async def test_letters_of_a_key_run_in_the_order_of_their_commits(app, url, connection):
    app.queue("line", ordered=True)
    await app.close()
    await app.open()
    first, second = [await asyncpg.connect(url) for _ in range(2)]
    async with first.transaction():
        await app.outbox(first).enqueue(KIND, "one", queue="line", key="k")

        async def other() -> None:
            async with second.transaction():
                await app.outbox(second).enqueue(KIND, "three", queue="line", key="k")

        waiting = asyncio.create_task(other())
        await app.outbox(first).enqueue_many([app.draft(KIND, "two", queue="line", key="k")])
    await waiting
    await first.close()
    await second.close()
    seen = []
    app.add_handler(KIND, seen.append, queue="line")
    await app.run(until_idle=True, signals=False)
    assert seen == ["one", "two", "three"]


async def test_a_connection_without_a_transaction_is_refused(app, url, connection):
    with pytest.raises(SourceError, match="no transaction open"):
        await app.outbox(connection).enqueue(KIND, "17")
    with (
        psycopg.connect(url, autocommit=True) as plain,
        pytest.raises(SourceError, match="autocommit"),
    ):
        app.outbox(plain).enqueue(KIND, "17")
    engine = sa.create_engine(
        url.replace("postgresql", "postgresql+psycopg"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
    )
    with engine.connect() as alchemy, pytest.raises(SourceError, match="AUTOCOMMIT"):
        app.outbox(alchemy).enqueue(KIND, "17")
    set_up_django(url)
    with pytest.raises(SourceError, match=r"transaction.atomic"):
        await asyncio.to_thread(_enqueue_with_django, app)


def _enqueue_with_django(app) -> None:
    from django.db import connection  # noqa: PLC0415 - needs settings

    try:
        app.outbox(connection).enqueue(KIND, "17")
    finally:
        connection.close()


async def test_what_is_no_connection_is_refused(app):
    with pytest.raises(SourceError, match="give a connection"):
        app.outbox(object())
    with sa.create_engine("sqlite://").connect() as other, pytest.raises(SourceError, match="on sqlite"):
        app.outbox(other).enqueue(KIND, "17")


async def test_a_store_in_another_place_has_no_outbox(connection):
    with pytest.raises(NotSupported, match="keep them in PostgreSQL"):
        Redrive("memory://").outbox(connection)


async def test_a_database_without_the_tables_is_told_so(url, connection):
    app = Redrive(f"{url}?schema=nowhere")
    async with connection.transaction():
        with pytest.raises(StoreUnavailable, match="redrive migrate"):
            await app.outbox(connection).enqueue(KIND, "17")


async def test_what_the_server_says_of_other_things_stays_the_drivers_own(app, connection):
    transaction = connection.transaction()
    await transaction.start()
    with pytest.raises(asyncpg.DivisionByZeroError):
        await connection.execute("SELECT 1 / 0")
    with pytest.raises(asyncpg.InFailedSQLTransactionError):
        await app.outbox(connection).enqueue(KIND, "17")
    await transaction.rollback()


async def test_a_dead_letter_of_an_ordered_queue_that_came_in_a_users_transaction_can_be_replayed(app, connection):
    await app.store.declare([QueueSpec(name="lane", ordered=True)])
    dead = msgspec.structs.replace(app.draft(KIND, "17", queue="lane", key="k"), failure=failure())
    async with connection.transaction():
        await app.outbox(connection).enqueue_many([dead])
    await app.store.act("replay", [dead.id], **OPERATOR)
    [claim] = await app.store.claim([Want("lane", (KIND,), 1)], lease=60, worker="w")
    assert claim.letter.id == dead.id


async def test_who_enqueues_many_keys_and_waits_for_one_keeps_no_later_one_from_others(app, url, connection):
    await app.store.declare([QueueSpec(name="lane", ordered=True)])
    named = "SELECT k FROM unnest('{a,b}'::text[]) AS k ORDER BY hashtextextended(k, hashtextextended('lane', 11))"
    low, high = (row[0] for row in await connection.fetch(named))

    def letter(key: str) -> Draft:
        return app.draft(KIND, "17", queue="lane", key=key)

    async def enqueue(*drafts: Draft) -> None:
        user = await asyncpg.connect(url, server_settings={"lock_timeout": "30s"})
        try:
            async with user.transaction():
                await app.outbox(user).enqueue_many(drafts)
        finally:
            await user.close()

    async with connection.transaction():
        await app.outbox(connection).enqueue_many([letter(low)])
        waiting = asyncio.create_task(enqueue(letter(high), letter(low)))
        await held_up_by(connection, waiting)
        await enqueue(letter(high))  # two who wait for each other's keys would be a deadlock
    await waiting


@pytest.mark.parametrize("user", ["psycopg", "asyncpg", "sqlalchemy-session", "django"], indirect=True)
async def test_a_transaction_whose_commit_does_not_wait_for_the_disk_is_warned_of_once_and_left_as_it_is(
    app, user, connection, caplog
):
    assert await connection.fetchval("SHOW synchronous_commit") == "off"
    await user.pay(app, "17")
    await user.pay(app, "18")
    warned = [record.message for record in caplog.records if "synchronous_commit is off" in record.message]
    assert len(warned) == 1
    async with connection.transaction():
        await app.outbox(connection).enqueue(KIND, "19")
        assert await connection.fetchval("SHOW synchronous_commit") == "off"


async def test_a_letter_that_failed_elsewhere_waits_for_its_retry(app, connection):
    due = 1_900_000_000_000_000
    elsewhere = {"failure": failure("away"), "retry": True, "attempts": 2, "policy": "linear", "due_us": due}
    draft = msgspec.structs.replace(app.draft(KIND, "17"), **elsewhere)
    async with connection.transaction():
        [receipt] = await app.outbox(connection).enqueue_many([draft])
    letter = await app.store.get(receipt.id)
    assert (letter.status, letter.attempts, letter.why, letter.due_us) == ("pending", 2, "failed elsewhere", due)
    assert [(line.attempt, line.error) for line in letter.tries] == [(2, "away")]
    [tally] = await app.store.tallies("pending")
    assert (tally.category, tally.policy, tally.count) == ("transient", "linear", 1)
