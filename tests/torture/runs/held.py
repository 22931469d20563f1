"""
A transaction that somebody holds open, so that the remains of moved letters cannot be cleared away.

Owns two measurements beside it: how long a claim takes while letters come at a steady rate, and how long a
drain takes. Judges nothing: tests and benchmarks say what is too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
import uuid
from typing import TYPE_CHECKING, NamedTuple

import asyncpg

from redrive.core.decide import SUCCEEDED, decide
from redrive.core.letter import Draft
from redrive.core.policy import DEFAULT_RETRY_POLICY
from redrive.stores.contract import Want
from redrive.stores.postgres import PostgresStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redrive.stores.contract import Claim

WANT = Want("work", ("a",), 100)
_STEP = 0.05  # seconds between two puts


class Latency(NamedTuple):
    """How long claims took, in milliseconds, in the first and in the last third of the time."""

    letters: int
    first_p50: float
    first_p99: float
    last_p50: float
    last_p99: float


@contextlib.asynccontextmanager
async def held_transaction(url: str, *, held: bool = True) -> AsyncIterator[None]:
    """Hold a snapshot of the outbox for the length of a block."""
    if not held:
        yield
        return
    connection = await asyncpg.connect(url)
    transaction = connection.transaction(isolation="repeatable_read")
    await transaction.start()
    await connection.fetchval("SELECT count(*) FROM redrive.outbox")
    try:
        yield
    finally:
        await transaction.rollback()
        await connection.close()


async def latency(url: str, *, seconds: float, rate: int, held: bool = True) -> Latency:
    """Put *rate* letters a second, claim and deliver them, beside a held transaction."""
    store = PostgresStore(url)
    await store.open()
    async with held_transaction(url, held=held):
        producing = asyncio.create_task(_produce(store, rate, round(rate * seconds)))
        took, letters = await _consume(store, producing)
    await store.close()
    third = len(took) // 3
    return Latency(letters, *_points(took[:third]), *_points(took[-third:]))


async def drain(url: str, *, letters: int, held: bool) -> float:
    """Put *letters*, then claim and deliver them all beside a held transaction; return the seconds this took."""
    store = PostgresStore(url)
    await store.open()
    for start in range(0, letters, 1_000):
        await store.put(_drafts(min(1_000, letters - start)))
    async with held_transaction(url, held=held):
        began = time.monotonic()
        settled: list[Claim] = []
        left = letters
        while left:
            exchanged = await store.exchange(_moves(settled), [WANT], lease=60, worker="w")
            left -= len(settled)
            settled = exchanged.claims
        took = time.monotonic() - began
    await store.close()
    return took


async def _produce(store: PostgresStore, rate: int, letters: int) -> int:
    """Put so many *letters* at a steady rate, by the clock; return how many."""
    began, put = time.monotonic(), 0
    while put < letters:
        due = min(letters, round((time.monotonic() - began) * rate)) - put
        if due:
            await store.put(_drafts(due))
            put += due
        await asyncio.sleep(_STEP)
    return put


async def _consume(store: PostgresStore, producing: asyncio.Task[int]) -> tuple[list[float], int]:
    took, settled, done = [], [], 0
    while settled or not producing.done() or done < producing.result():
        began, steady = time.monotonic(), not producing.done()
        exchanged = await store.exchange(_moves(settled), [WANT], lease=60, worker="w")
        if steady:
            took.append((time.monotonic() - began) * 1_000)
        done += len(settled)
        settled = exchanged.claims
        if not settled:
            await asyncio.sleep(0.005)
    return took, done


def _drafts(count: int) -> list[Draft]:
    return [Draft(id=str(uuid.uuid4()), queue="work", kind="a", payload=b"x" * 220) for _ in range(count)]


def _moves(claims: list[Claim]) -> list[tuple[Claim, object]]:
    return [(claim, decide(claim, SUCCEEDED, DEFAULT_RETRY_POLICY, 0.0)) for claim in claims]


def _points(took: list[float]) -> tuple[float, float]:
    cut = statistics.quantiles(took, n=100)
    return round(cut[49], 2), round(cut[98], 2)
