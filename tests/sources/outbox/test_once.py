"""Effects that happen once, with every driver: whatever runs twice, is replayed, or dies in between."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs
from tests.sources.outbox.users import KIND, USERS

from redrive import Letter, RetryPolicy
from redrive.stores.contract import Retention

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=USERS)
def name(request) -> str:
    return request.param


@pytest.fixture
def user(name, url, connection):
    return USERS[name](url)


async def effects(connection) -> int:
    return await connection.fetchval("SELECT count(*) FROM shop.effects")


async def kept(app, **options) -> Letter:
    return await app.desk.show((await app.enqueue(KIND, "17", **options)).id)


async def test_an_effect_happens_once_however_often_the_letter_runs(app, user, connection):
    letter = await kept(app)
    assert [await user.handle(app, letter) for _ in range(3)] == [True, False, False]
    assert await effects(connection) == 1


def fail() -> None:
    raise RuntimeError("the effect was had, and then something else failed")


async def test_an_effect_that_was_rolled_back_is_had_the_next_time(app, user, connection):
    letter = await kept(app)
    with pytest.raises(RuntimeError, match="something else failed"):
        await user.handle(app, letter, fail)
    assert await effects(connection) == 0
    assert await user.handle(app, letter)
    assert await effects(connection) == 1


async def test_two_at_once_have_one_effect(app, user, connection):
    letter = await kept(app)
    assert sorted(await asyncio.gather(*(user.handle(app, letter) for _ in range(3)))) == [False, False, True]
    assert await effects(connection) == 1


async def test_a_replayed_letter_has_no_second_effect(app, user, connection):
    runs = []

    @app.handler(KIND, policy=RetryPolicy.NEVER)
    async def handle(letter: Letter) -> None:
        runs.append(await user.handle(app, letter))
        if len(runs) < 3:
            raise RuntimeError("after the effect")

    receipt = await app.enqueue(KIND, "17", idempotency_key="order-17")
    for _ in range(2):
        await app.run(until_idle=True, signals=False)
        await app.desk.replay(receipt.id)
    await app.run(until_idle=True, signals=False)
    assert runs == [True, False, False]
    assert await effects(connection) == 1


WORKER = """
import asyncio, os, signal, sys
from redrive import Letter, Redrive
from msgspec import structs
from tests.sources.outbox.users import KIND, USERS

url, name = sys.argv[1:]
app = Redrive(url, lease_seconds=2, sweep_seconds=0.1, poll_seconds=0.1)
user = USERS[name](url)

@app.handler(KIND)
async def handle(letter: Letter) -> None:
    if await user.handle(app, letter):
        os.kill(os.getpid(), signal.SIGKILL)  # the effect is committed, and nobody hears of it

asyncio.run(app.run(until_idle=True, signals=False))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["psycopg", "psycopg-async", "asyncpg", "sqlalchemy-session", "sqlalchemy-async", "django"], indirect=True
)
async def test_a_worker_that_dies_between_effect_and_settling_leaves_one_effect(app, name, url, connection):
    letter = await kept(app)
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    ends = [
        (
            await asyncio.to_thread(subprocess.run, [sys.executable, "-c", WORKER, url, name], env=env, timeout=300)
        ).returncode
        for _ in range(2)
    ]
    assert ends == [-signal.SIGKILL, 0]
    after = await app.desk.show(letter.id)
    assert after.status == "delivered"
    assert after.losses >= 1
    assert await effects(connection) == 1


# ---------------------------------------------------------------------- whose effect, and for how long


@pytest.fixture
def one(url, connection):
    return USERS["asyncpg"](url)


async def test_handlers_of_one_key_have_an_effect_each(app, connection):
    letter = await kept(app, idempotency_key="order-17")
    firsts = []
    for handler in ("mail", "stock", "mail", None):
        async with app.once(letter, connection, handler=handler) as first:
            firsts.append(first)
    assert firsts == [True, True, False, True]
    rows = await connection.fetch("SELECT handler_name, idempotency_key FROM redrive.event_handled ORDER BY 1")
    assert [tuple(row) for row in rows] == [("mail", "order-17"), (KIND, "order-17"), ("stock", "order-17")]


async def test_the_name_of_a_handler_is_the_kind_also_where_a_letter_has_a_target(app, connection):
    letter = structs.replace(await kept(app, idempotency_key="order-17"), handler="billing:charge")
    async with app.once(letter, connection) as first:
        assert first
    assert await connection.fetchval("SELECT handler_name FROM redrive.event_handled") == KIND


async def test_a_handled_key_is_kept_as_long_as_a_letter_has_it(app, connection, one):
    app.add_handler(KIND, lambda payload: None)
    letters = [await kept(app, idempotency_key="order-17"), await kept(app)]
    for letter in letters:
        assert await one.handle(app, letter)
    over = Retention(delivered=None, handled=0)
    await app.store.retain(over)
    assert await handled_keys(connection) == 2  # pending letters have them
    await app.run(until_idle=True, signals=False)
    await app.store.retain(over)
    assert await handled_keys(connection) == 2  # delivered ones too
    await app.store.retain(Retention(delivered=0, handled=3600))
    assert await handled_keys(connection) == 2  # the letters are gone, but the time is not over
    await app.store.retain(over)
    assert await handled_keys(connection) == 0


async def test_retention_comes_round_to_every_handled_key(app, connection):
    await connection.execute(
        "INSERT INTO redrive.event_handled "
        "SELECT 'h', 'key-' || n, now() - interval '1 day' FROM generate_series(1, 25) AS n"
    )
    await kept(app, idempotency_key="key-3")
    for _ in range(4):
        await connection.fetchval("SELECT redrive.outbox_retain_handled(0, 10, NULL)")
    assert await handled_keys(connection) == 1


async def handled_keys(connection) -> int:
    return await connection.fetchval("SELECT count(*) FROM redrive.event_handled")
