"""Suspects: a child process dies of them, the consumer does not, and what only fails there is not held against them."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest
from tests.sources.kafka import workers
from tests.sources.kafka.samples import record

from redrive.engine.clock import SystemClock
from redrive.errors import SourceError
from redrive.sources.kafka import AsyncExecutionEngine, CompletionStatus, ExecutionConfig, ParallelConsumer, WorkManager
from redrive.sources.kafka.execution.factory import engine_for
from redrive.sources.kafka.execution.suspects import SuspectEngine

SUCCESS, FAILURE = CompletionStatus.SUCCESS, CompletionStatus.FAILURE


async def ends(worker, item, **settings):
    """Run *item* as a suspect and return its completion."""
    config = ExecutionConfig(retry_backoff_ms=1, retry_jitter_ms=0, **settings)
    home = engine_for(worker, config)
    heard: asyncio.Queue = asyncio.Queue()
    suspects = SuspectEngine(worker, config, home, clock=SystemClock())
    work = WorkManager(home, "key_hash", lambda events: [heard.put_nowait(each) for each in events], suspects=suspects)
    try:
        work.take_isolated([item])
        return await asyncio.wait_for(heard.get(), 120)
    finally:
        await work.close(0)


@pytest.mark.parametrize("worker", [workers.dies_if_poison, workers.dies_if_poison_async])
async def test_a_suspect_that_kills_is_a_dead_letter_and_this_process_lives(worker):
    event = await ends(worker, record(value=b"poison"))
    assert (event.status, event.disposition) == (FAILURE, "worker_died")
    assert "SIGKILL" in event.error


async def test_a_suspect_of_a_batch_worker_kills_its_child_only():
    event = await ends(workers.batch_dies_if_poison, record(value=b"poison"), batch_size=10)
    assert (event.status, event.disposition) == (FAILURE, "worker_died")


async def test_a_suspect_that_is_innocent_is_handled_in_the_child():
    event = await ends(workers.wants_to_be_in_a_child, record())
    assert (event.status, event.attempt) == (SUCCESS, 1)


async def test_what_fails_in_the_child_for_want_of_something_runs_in_the_consumer(monkeypatch, caplog):
    monkeypatch.setattr(workers, "CONNECTION", "as it was set up when the consumer started")
    with caplog.at_level(logging.WARNING, "redrive.kafka"):
        event = await ends(workers.needs_a_connection, record())
    assert (event.status, event.attempt) == (SUCCESS, 1)
    assert "runs in the consumer" in caplog.text


async def test_what_fails_everywhere_has_all_its_tries_in_the_consumer():
    event = await ends(workers.fails, record(value=b"soup"), max_retries=2)
    assert (event.status, event.attempt, event.disposition) == (FAILURE, 2, "retries_exhausted")


async def test_a_worker_that_no_child_can_find_runs_in_the_consumer_and_the_log_says_so(caplog):
    async def worker(_record):
        pass

    with caplog.at_level(logging.WARNING, "redrive.kafka"):
        event = await ends(worker, record())
    assert event.status is SUCCESS
    assert "no child process can run it" in caplog.text


async def test_a_suspect_whose_partition_goes_before_it_began_is_counted_as_dropped():
    first, second = record(0), record(1)
    second.assignment = first.assignment
    config = ExecutionConfig()
    home = AsyncExecutionEngine(workers.fine, config)
    work = WorkManager(
        home, "unordered", lambda _: None, suspects=SuspectEngine(workers.hangs, config, home, clock=SystemClock())
    )
    try:
        work.take_isolated([first, second])
        assert work.revoke(first.assignment) == 1
    finally:
        await work.close(0)


async def test_a_script_that_a_child_imports_does_not_consume(monkeypatch):
    monkeypatch.setitem(sys.modules, "__redrive_main__", workers)
    with pytest.raises(SourceError, match="__main__"):
        await ParallelConsumer(["orders"], workers.fine, group="g").run()
