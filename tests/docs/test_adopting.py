"""An outbox of somebody's own is moved as the page says: every row, its failures, what was handled."""

from __future__ import annotations

import datetime as dt

import pytest
from tests.docs.pages import DOCS, blocks
from tests.stores.conftest import server_url

from redrive import Redrive
from redrive.errors import SchemaMismatch
from redrive.wiring import open_store

THEN = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)
PAGE = DOCS / "how-to" / "adopt-an-outbox.md"
OUTBOX = """
DROP SCHEMA IF EXISTS core CASCADE;
DROP SCHEMA IF EXISTS outbox_before CASCADE;
CREATE SCHEMA core;
CREATE TABLE core.outbox (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), event_type text NOT NULL, event_version integer NOT NULL DEFAULT 1,
    occurred_at timestamptz NOT NULL DEFAULT now() - interval '1 day', source text NOT NULL DEFAULT 'shop', target text,
    channel text NOT NULL DEFAULT 'outbox_default', generation bigint, workspace_id text, payload jsonb NOT NULL,
    idempotency_key text, trace_context text, status text NOT NULL DEFAULT 'pending',
    attempts integer NOT NULL DEFAULT 0, last_error text, failure_history jsonb NOT NULL DEFAULT '[]',
    first_failed_at timestamptz, deleted_at timestamptz
);
CREATE TABLE core.event_handled (handler_name text, idempotency_key text, PRIMARY KEY (handler_name, idempotency_key));
INSERT INTO core.outbox (event_type, payload, idempotency_key, status, attempts, last_error, first_failed_at,
                         failure_history, deleted_at)
VALUES ('order.paid', '{"order": 1}', 'k1', 'pending', 0, NULL, NULL, '[]', NULL),
       ('order.paid', '{"order": 2}', 'k2', 'in_flight', 1, NULL, NULL, '[]', NULL),
       ('order.paid', '{"order": 3}', 'k3', 'delivered', 1, NULL, NULL, '[]', NULL),
       ('order.paid', '{"order": 4}', 'k4', 'failed', 5, 'the bank is away', now(), '[{"last_error": "once"}]', NULL),
       ('order.paid', '{"order": 5}', 'k5', 'failed', 5, 'no such order', now(), '[]', now()),
       ('order.paid', '{"order": 6}', 'k6', 'failed', 5, NULL, now(), '[]', NULL),
       ('order.paid', '{"order": 7}', 'k7', 'delivered', 1, NULL, NULL, '[]', now()),
       ('order.paid', '{"order": 8}', 'k8', 'in_flight', 1, NULL, NULL, '[]', now());
INSERT INTO core.event_handled VALUES ('order.paid', 'k3');
"""


@pytest.fixture
def url() -> str:
    return f"{server_url()}?schema=core"


@pytest.fixture
async def connection():
    import asyncpg  # noqa: PLC0415 - only where there is a driver

    opened = await asyncpg.connect(server_url())
    await opened.execute(OUTBOX)
    yield opened
    await opened.execute("DROP SCHEMA IF EXISTS core, outbox_before CASCADE")
    await opened.close()


async def test_a_table_outbox_that_redrive_did_not_make_is_refused_with_the_way_out(connection, url):
    with pytest.raises(SchemaMismatch, match=r"'outbox' that redrive did not make.*Adopt an existing outbox"):
        await open_store(url).open()
    assert await connection.fetchval("SELECT count(*) FROM core.outbox") == 8


async def test_every_row_of_an_outbox_is_moved_as_the_page_says(connection, url):
    aside, rows, check, producer = (block.code for block in blocks(PAGE, "sql"))
    await connection.execute(aside)
    async with Redrive(url) as app:
        await connection.execute(rows)
        assert tuple(await connection.fetchrow(check)) == (8, 8)
        handled: list[int] = []

        @app.handler("order.paid")
        async def paid(order: dict) -> None:
            handled.append(order["order"])

        stats = await app.desk.stats()
        assert stats.balanced, stats.books
        assert {name: n for name, n in stats.books.items() if n} == {
            "enqueued": 8, "pending": 2, "delivered": 2, "failed": 2, "archived": 2,
        }  # fmt: skip
        assert sorted((group.count, group.title) for group in await app.desk.groups()) == [
            (1, ""), (1, "the bank is away"),
        ]  # fmt: skip
        assert await connection.fetchval("SELECT count(*) FROM core.event_handled") == 1
        await app.desk.replay(query="status:failed", reason="adopted")
        await app.run(until_idle=True)
        assert sorted(handled) == [1, 2, 4, 6]
        await app.desk.restore(query="status:archived", reason="looked at")
        await app.desk.replay(query="status:failed", reason="looked at")
        await app.run(until_idle=True)
        assert sorted(handled) == [1, 2, 4, 5, 6, 8]  # none of the delivered ones

        first, second = [await connection.fetchval(producer) for _ in range(2)]
        assert first == second
        await app.run(until_idle=True)
        assert sorted(handled) == [1, 2, 4, 5, 6, 8, 17]
        assert (await app.desk.stats()).balanced


async def test_an_event_keeps_the_time_at_which_it_occurred(connection, url):
    await connection.execute("DROP TABLE core.outbox, core.event_handled")
    async with Redrive(url) as app:
        insert = "INSERT INTO core.outbox_events (event_type, payload, occurred_at) VALUES ('order.paid', '{}', $1)"
        await connection.execute(insert, THEN)
        [letter] = (await app.desk.ls()).letters
        assert letter.created_at == THEN


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("INSERT INTO core.outbox_events (event_type, payload, status) VALUES ('a', '{}', 'failed')", "with a past"),
        ("INSERT INTO core.outbox_events (event_type, payload, attempts) VALUES ('a', '{}', 4)", "with a past"),
        ("INSERT INTO core.outbox_events (event_type, payload, last_error) VALUES ('a', '{}', 'x')", "with a past"),
        ("UPDATE core.outbox_events SET status = 'failed'", "cannot update an event"),
        ("DELETE FROM core.outbox_events", "cannot delete an event"),
    ],
)
async def test_the_view_takes_new_events_and_nothing_else(connection, url, sql, why):
    import asyncpg  # noqa: PLC0415 - only where there is a driver

    await connection.execute("DROP TABLE core.outbox, core.event_handled")
    async with Redrive(url) as app:
        kept = "INSERT INTO core.outbox_events (event_type, payload) VALUES ('order.paid', '{}') RETURNING status"
        assert await connection.fetchval(kept) == "pending"
        with pytest.raises(asyncpg.PostgresError, match=why):
            await connection.execute(sql)
        stats = await app.desk.stats()
        assert (stats.balanced, stats.books["pending"]) == (True, 1)
