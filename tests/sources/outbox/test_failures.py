"""What the errors of real drivers mean to the outbox, and what is kept of failures."""

from __future__ import annotations

import asyncio

import asyncpg
import msgspec
import psycopg
import pydantic
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from tests.servers.ports import free_port
from tests.sources.outbox.users import set_up_django

from redrive import DEFAULT_RETRY_POLICY, FailureCycle, Redrive, RetryPolicy, TerminalHandlerError
from redrive.core.classify import HANDLER

TWICE = "CREATE TEMP TABLE once (id integer PRIMARY KEY); INSERT INTO once VALUES (1), (1)"
SLOW = "SET statement_timeout = 1; SELECT pg_sleep(5)"


def nowhere() -> str:
    return f"postgresql://postgres@127.0.0.1:{free_port()}/postgres"


async def with_psycopg(url: str, sql: str) -> None:
    def ask() -> None:
        with psycopg.connect(url, connect_timeout=60) as connection:
            connection.execute(sql)

    await asyncio.to_thread(ask)


async def with_asyncpg(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


async def with_sqlalchemy(url: str, sql: str) -> None:
    engine = sa.create_engine(url.replace("postgresql", "postgresql+psycopg"), poolclass=sa.NullPool)

    def ask() -> None:
        with engine.connect() as connection:
            connection.exec_driver_sql(sql)

    await asyncio.to_thread(ask)


async def with_sqlalchemy_async(url: str, sql: str) -> None:
    engine = create_async_engine(url.replace("postgresql", "postgresql+asyncpg"), poolclass=sa.NullPool)
    async with engine.connect() as connection:
        for each in sql.split(";"):
            await connection.exec_driver_sql(each)


async def with_django(url: str, sql: str) -> None:
    def ask() -> None:
        from django.db import connections  # noqa: PLC0415 - needs settings

        connection = connections.create_connection("default")
        connection.settings_dict = connection.settings_dict | {"PORT": url.rpartition(":")[2].partition("/")[0]}
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
        finally:
            connection.close()

    await asyncio.to_thread(ask)


DRIVERS = [with_psycopg, with_asyncpg, with_sqlalchemy, with_sqlalchemy_async, with_django]


@pytest.fixture
def judged(app):
    """Run a handler, once, and return the letter."""

    async def judge(function, **options):
        async def handle(payload: dict) -> None:
            await function()

        app.add_handler("judged", handle, policy=RetryPolicy.immediate(max_attempts=2), **options)
        receipt = await app.enqueue("judged", {})
        await app.run(until_idle=True, signals=False)
        letter = await app.desk.show(receipt.id)
        assert letter.status == "failed"
        return letter

    return judge


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.__name__)
def ask(request, url):
    set_up_django(url)
    return request.param


async def test_refused_data_is_terminal(judged, ask, url):
    assert (await judged(lambda: ask(url, TWICE))).attempts == 1


async def test_a_server_that_is_away_is_transient(judged, ask):
    there = nowhere()
    assert (await judged(lambda: ask(there, "SELECT 1"))).attempts == 2


async def test_a_statement_that_took_too_long_is_transient(judged, ask, url):
    assert (await judged(lambda: ask(url, SLOW))).attempts == 2


class Order(pydantic.BaseModel):
    order: int


def _raiser(error: Exception):
    async def fail() -> None:
        raise error

    return fail


async def _validate() -> None:
    Order.model_validate({"order": "many"})


@pytest.mark.parametrize(
    ("function", "attempts"),
    [
        (_validate, 1),
        (_raiser(TerminalHandlerError("never")), 1),
        (_raiser(ConnectionError("reset")), 2),
        (_raiser(TimeoutError()), 2),
        (_raiser(ValueError("of my own code")), 2),
        (_raiser(Exception("unknown")), 2),
    ],
    ids=["pydantic", "terminal", "connection", "timeout", "own value error", "unknown"],
)
async def test_what_is_terminal_by_default(judged, function, attempts):
    assert (await judged(function)).attempts == attempts


async def test_a_handler_names_its_own_terminal_errors(judged):
    assert (await judged(_raiser(KeyError("x")), terminal_errors=(KeyError,))).attempts == 1


async def test_a_payload_that_does_not_decode_is_terminal(app):
    async def handle(order: Order) -> None: ...

    app.add_handler("order", handle)
    receipt = await app.enqueue("order", {"order": "many"})
    await app.run(until_idle=True, signals=False)
    letter = await app.desk.show(receipt.id)
    assert (letter.status, letter.attempts) == ("failed", 1)


async def test_the_outbox_has_the_defaults_of_every_store(app):
    for each in (app, Redrive("memory://"), Redrive("sqlite:///unopened.db")):
        made = each.add_handler("a", lambda payload: None)
        assert (made.rules, made.policy) == (HANDLER, DEFAULT_RETRY_POLICY)


# ---------------------------------------------------------------------- FailureCycle

# What release 0.1 wrote. Never change it: add fields with defaults to the struct, and a newer text below.
GOLDEN = (
    b'{"attempts":5,"losses":1,"error_type":"RuntimeError","last_error":"it failed","category":"transient",'
    b'"fingerprint":"7f3a","why":"exhausted","first_failed_at":"2026-11-17T02:22:22.359000Z",'
    b'"failed_at":"2026-11-17T02:22:23.359000Z","tries":[{"attempt":5,"at":"2026-11-17T02:22:23.359000Z",'
    b'"why":"exhausted","error_type":"RuntimeError","error":"it failed","category":"transient","rule":"the default",'
    b'"delay":1.0,"draw":0.5,"policy":"never"}],"generation":3,"release":"1.4","replayed_at":"2026-11-17T02:23:00Z",'
    b'"replayed_by":"ana@ops","reason":"fixed","plan":"p1"}'
)


def test_the_json_of_a_failure_cycle_only_ever_grows():
    cycle = msgspec.json.decode(GOLDEN, type=FailureCycle)
    written = msgspec.json.decode(msgspec.json.encode(cycle))
    golden = msgspec.json.decode(GOLDEN)
    assert {name: written[name] for name in golden} == golden
    assert msgspec.json.decode(b'{"attempts":1,"of a later release":2}', type=FailureCycle) == FailureCycle(attempts=1)
