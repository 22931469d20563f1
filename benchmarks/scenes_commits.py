"""
Scenes about what is committed, and what runs again: holes, late starts, restarts, rebalances.

Owns the scenes. Their handlers run in the consumer's own process.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import Counter
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.kafka_topics import body, key
from benchmarks.kafka_work import note_line
from benchmarks.scenes_stage import Stage, id_of, scene, value_of

FEW = 20
EACH = 5  # records of one transaction
DELETED = 10
MANY = 100  # each of its own key
STUCK = 10
KEYS = 8
OF_A_KEY = 5
TAKES = 2.0  # seconds


@scene
async def transactions(stage: Stage) -> dict[str, int]:
    """The topic is written in transactions, whose markers take an offset each and are never delivered."""
    stage.create()
    producer = Producer({"bootstrap.servers": stage.bootstrap, "transactional.id": stage.topic})
    producer.init_transactions(30)
    for first in range(0, FEW, EACH):
        producer.begin_transaction()
        for i in range(first, first + EACH):
            producer.produce(stage.topic, key=key(i), value=body(i))
        producer.commit_transaction()
    return await _handled_not_committed(stage, {i: i + i // EACH for i in range(FEW)})


@scene
async def a_log_that_begins_late(stage: Stage) -> dict[str, int]:
    """A new group reads a topic whose first records have expired."""
    stage.create()
    stage.produce(range(FEW))
    place = TopicPartition(stage.topic, 0, DELETED)
    admin = AdminClient({"bootstrap.servers": stage.bootstrap})
    admin.delete_records([place])[TopicPartition(stage.topic, 0)].result(30)
    return await _handled_not_committed(stage, {i: i for i in range(DELETED, FEW)})


async def _handled_not_committed(stage: Stage, offsets: dict[int, int]) -> dict[str, int]:
    last = max(offsets.values())
    async with stage.consuming(_notes):
        await stage.until(lambda: stage.committed() > last, 10)
    committed = stage.committed()
    assert set(stage.noted()) == set(offsets), "not everything was handled"
    return {"n": len(offsets), "wrong": sum(offset >= committed for offset in offsets.values())}


@scene
async def a_restart(stage: Stage) -> dict[str, int]:
    """A consumer ends and begins again while one record is stuck and 89 behind it are done; how many run again?"""
    begun: list[int] = []

    async def worker(given: Any) -> None:
        begun.append(id_of(given))
        if begun[-1] == STUCK:
            await asyncio.Event().wait()

    stage.create()
    stage.produce(range(MANY))
    async with stage.consuming(worker, keeps_map=True):
        assert await stage.until(lambda: len(begun) == MANY and stage.committed() == STUCK, 20)
        await asyncio.sleep(2)  # it may write down what else is done
    async with stage.consuming(worker, keeps_map=True):
        assert await stage.until(lambda: begun.count(STUCK) > 1, 20)
        await asyncio.sleep(2)
    return {"n": MANY - 1, "wrong": sum(times - 1 for i, times in Counter(begun).items() if i != STUCK)}


@scene
async def a_second_member(stage: Stage) -> dict[str, int]:
    """A second member joins while handlers run that take 2 s; how often does a key run twice at the same time?"""
    at_work: list[bytes] = []
    together: list[int] = []
    owners: set[int] = set()

    async def worker(owner: int, given: Any) -> None:
        mine = bytes(given.key)
        if mine in at_work:
            together.append(id_of(given))
        at_work.append(mine)
        await asyncio.sleep(TAKES)
        at_work.remove(mine)
        owners.add(owner)
        note_line(value_of(given))

    stage.create(partitions=2)
    _of_few_keys(stage)
    n = KEYS * OF_A_KEY
    async with stage.consuming(functools.partial(worker, 1)):
        assert await stage.until(lambda: len(stage.noted()) >= KEYS, 20)
        async with stage.consuming(functools.partial(worker, 2)):
            await stage.until(lambda: stage.committed() == n, 60)
    assert owners == {1, 2}, "the second member had nothing to do"
    assert set(stage.noted()) == set(range(n)), "not everything was handled"
    return {"n": n, "wrong": len(together)}


@scene
async def a_late_end(stage: Stage) -> dict[str, int]:
    """
    A partition goes to another member and comes back, and its record begins again; then its first run ends.

    Is the offset committed while the run that counts is still under way?
    """
    begun: Counter[int] = Counter()
    elsewhere: list[int] = []
    late = asyncio.Event()

    async def worker(given: Any) -> None:
        begun[id_of(given)] += 1
        await (_stubbornly(late) if begun[id_of(given)] == 1 else asyncio.Event().wait())

    async def other(given: Any) -> None:
        elsewhere.append(id_of(given))
        await asyncio.Event().wait()

    stage.create(partitions=2)
    for i in (0, 1):
        stage.produce([i], partition=i)
    async with stage.consuming(worker):
        assert await stage.until(lambda: len(begun) == 2, 20)
        async with stage.consuming(other):
            assert await stage.until(lambda: bool(elsewhere), 60)
        assert await stage.until(lambda: begun[elsewhere[0]] == 2, 60)
        late.set()
        await stage.until(lambda: stage.committed() > 0, 5)
    return {"n": 1, "wrong": stage.committed_in(elsewhere[0])}


async def _stubbornly(event: asyncio.Event) -> None:
    """Wait for *event*, whoever cancels: so does a handler that is in the middle of something."""
    while not event.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await event.wait()


def _of_few_keys(stage: Stage) -> None:
    producer = Producer({"bootstrap.servers": stage.bootstrap})
    for i in range(KEYS * OF_A_KEY):
        place = i % KEYS
        producer.produce(stage.topic, key=b"k%d" % place, value=body(i), partition=place % 2)
    assert producer.flush(30) == 0


async def _notes(given: Any) -> None:
    note_line(value_of(given))
