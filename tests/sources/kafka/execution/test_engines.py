"""One work item, one completion: the same promises whichever engine runs it."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.engine.starting import comes_true
from tests.sources.kafka import workers
from tests.sources.kafka.samples import partition, record

from redrive import Reject, RetryAfter
from redrive.errors import HandlerError
from redrive.sources.kafka import AsyncExecutionEngine, CompletionStatus, ExecutionConfig, ProcessExecutionEngine
from redrive.sources.kafka.dead_letters.headers import dead_letter_headers

SUCCESS, FAILURE, RELEASED = CompletionStatus.SUCCESS, CompletionStatus.FAILURE, CompletionStatus.RELEASED
QUICK = {"retry_backoff_ms": 1, "retry_jitter_ms": 0, "process_count": 1}


async def completions(kind, worker, records, **config):
    """Run *records* and return one completion for each, in the order they came; more than one would be seen."""
    engine = kind(worker, ExecutionConfig(**{**QUICK, **config}))
    events: asyncio.Queue = asyncio.Queue()
    engine.connect(events.put_nowait)
    try:
        engine.submit(records)
        async with asyncio.timeout(120):
            found = [await events.get() for _ in records]
    finally:
        await engine.close(0)
    assert events.empty()
    assert engine.running == 0
    return found


async def one(kind, worker, item=None, **config):
    [event] = await completions(kind, worker, [item or record(value=b"soup")], **config)
    return event


async def fine(_record):
    pass


async def fails(one):
    raise RuntimeError(f"no {one.value.decode()}")


async def fails_silently(_record):
    raise ConnectionRefusedError


async def fails_from_a_cause(_record):
    raise RuntimeError("no soup") from KeyError("pot")


async def succeeds_at_third(one):
    if one.attempt < 3:
        raise RuntimeError("not yet")


async def hangs(_record):
    await asyncio.Event().wait()


async def rejects(_record):
    raise Reject("never")


BOTH = pytest.mark.parametrize("kind", [AsyncExecutionEngine, ProcessExecutionEngine])


def worker_for(kind, name):
    return getattr(workers, name) if kind is ProcessExecutionEngine else globals()[name]


@BOTH
async def test_success_on_the_first_try_says_attempt_one(kind):
    event = await one(kind, worker_for(kind, "fine"))
    assert (event.status, event.attempt, event.error) == (SUCCESS, 1, None)


@BOTH
async def test_success_after_retries_says_which_attempt_succeeded(kind):
    event = await one(kind, worker_for(kind, "succeeds_at_third"))
    assert (event.status, event.attempt) == (SUCCESS, 3)


@BOTH
async def test_failure_comes_after_max_retries_tries_with_the_last_error(kind):
    event = await one(kind, worker_for(kind, "fails"), max_retries=4)
    assert (event.status, event.attempt, event.error) == (FAILURE, 4, "RuntimeError: no soup")
    assert event.disposition == "retries_exhausted"


@BOTH
async def test_the_line_of_a_failed_try_names_the_errors_type_also_if_it_has_no_words(kind, caplog):
    caplog.set_level("INFO", "redrive.kafka")
    event = await one(kind, worker_for(kind, "fails_silently"), max_retries=2)
    said = [each.getMessage() for each in caplog.records if "failed" in each.getMessage()]
    assert [line.rpartition("s: ")[2] for line in said[:1]] == ["ConnectionRefusedError"]
    assert said[1].endswith("ConnectionRefusedError")
    assert event.error == "ConnectionRefusedError"


async def test_a_record_in_a_log_line_shows_the_attempt_it_had_when_the_line_was_written(caplog):
    caplog.set_level("INFO", "redrive.kafka")
    await one(AsyncExecutionEngine, fails, max_retries=3)
    late = [each.msg % each.args for each in caplog.records]  # as a handler that formats later does
    assert [("attempt 1)" in line, "attempt 2)" in line) for line in late[:2]] == [(True, False), (False, True)]


@BOTH
async def test_the_reason_of_a_dead_letter_is_the_errors_own_text_without_its_causes(kind):
    event = await one(kind, worker_for(kind, "fails_from_a_cause"), max_retries=1)
    headers = dict(dead_letter_headers(event, "g", failed_at=1, first_failed_at=1))
    assert headers["x-error-reason"] == b"no soup"
    assert headers["x-redrive-causes"] == b"caused by KeyError: 'pot'"


@BOTH
async def test_a_dead_letter_carries_the_traceback_only_where_that_is_asked_for(kind):
    for asked in (False, True):
        event = await one(kind, worker_for(kind, "fails"), max_retries=1, tracebacks=asked)
        headers = dict(dead_letter_headers(event, "g", failed_at=1, first_failed_at=1))
        assert (b"fails\n" in headers.get("x-redrive-traceback", b"")) == asked
        assert ("x-redrive-traceback" in headers) == asked


@BOTH
async def test_a_try_that_times_out_counts_as_an_attempt(kind):
    event = await one(kind, worker_for(kind, "hangs"), max_retries=2, task_timeout_ms=50)
    assert (event.status, event.attempt) == (FAILURE, 2)
    assert event.error == "TimeoutError: timed out after 0.05 s"
    assert event.disposition == "timeout"


@BOTH
async def test_what_can_never_succeed_is_not_tried_again(kind):
    event = await one(kind, worker_for(kind, "rejects"))
    assert (event.status, event.attempt, event.disposition) == (FAILURE, 1, "terminal")


@BOTH
async def test_a_terminal_error_of_the_configuration_is_not_tried_again(kind):
    event = await one(kind, worker_for(kind, "fails"), terminal_errors=(RuntimeError,))
    assert (event.attempt, event.disposition) == (1, "terminal")


async def test_one_try_means_one_try():
    event = await one(AsyncExecutionEngine, fails, max_retries=1)
    assert (event.status, event.attempt) == (FAILURE, 1)


async def test_a_plain_function_runs_in_a_thread():
    names = []
    await one(AsyncExecutionEngine, lambda _record: names.append(threading.current_thread().name))
    assert names == ["redrive-handler"]


async def test_a_retry_waits_outside_of_the_slots_and_others_flow():
    ran = []

    async def worker(item):
        ran.append(item.offset)
        if item.offset == 0 and item.attempt == 1:
            raise RetryAfter(1.5)  # the others are through long before that

    owner = partition()
    records = [record(offset, of=owner) for offset in range(50)]
    found = await completions(AsyncExecutionEngine, worker, records, max_in_flight=1)
    assert [event.offset for event in found] == [*range(1, 50), 0]
    assert ran == [*range(50), 0]


async def test_no_more_run_at_once_than_may():
    running, most = 0, 0

    async def worker(_record):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await completions(AsyncExecutionEngine, worker, [record(n) for n in range(40)], max_in_flight=7)
    assert most == 7


async def test_out_of_time_means_no_further_retry():
    event = await one(AsyncExecutionEngine, fails, max_retries=9, retry_backoff_ms=5000, max_retry_time_ms=100)
    assert (event.attempt, event.disposition) == (1, "out_of_time")


class Unspeakable(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("not even this")


ODD_ERRORS = {
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "Unspeakable": Unspeakable,
    "ExceptionGroup": lambda: ExceptionGroup("many", [ValueError("a"), KeyError("b")]),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("many", [KeyboardInterrupt(), GeneratorExit()]),
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
}


def raising(make, way):
    """Return a worker for which the record at offset 1 always fails with what *make* returns."""

    async def at_once(item):
        if item.offset == 1:
            raise make()

    async def after_a_wait(item):
        await asyncio.sleep(0)
        await at_once(item)

    def in_a_thread(item):
        if item.offset == 1:
            raise make()

    return {"task": at_once, "task that waited": after_a_wait, "thread": in_a_thread}[way]


@pytest.mark.parametrize("way", ["task", "task that waited", "thread"])
@pytest.mark.parametrize("name", ODD_ERRORS)
async def test_base_exceptions_of_a_worker_are_failures_like_others(name, way):
    items = [record(offset) for offset in range(4)]
    found = await completions(AsyncExecutionEngine, raising(ODD_ERRORS[name], way), items, max_retries=2)
    by_offset = {event.offset: event for event in found}
    odd = by_offset.pop(1)
    assert (odd.status, odd.attempt, odd.disposition) == (FAILURE, 2, "retries_exhausted")
    is_changed = name == "StopIteration" and way != "thread"  # by Python, which lets none out of a coroutine
    assert odd.error.partition(":")[0].endswith("RuntimeError" if is_changed else name), odd.error
    assert [(event.status, event.attempt) for event in by_offset.values()] == [(SUCCESS, 1)] * 3


async def test_a_released_partition_starts_nothing_more():
    gate, began = asyncio.Event(), []

    async def worker(item):
        began.append(item.offset)
        await gate.wait()
        raise RuntimeError("after the partition has gone")

    owner = partition()
    engine = AsyncExecutionEngine(worker, ExecutionConfig(max_in_flight=1, **QUICK))
    events: asyncio.Queue = asyncio.Queue()
    engine.connect(events.put_nowait)
    engine.submit([record(n, of=owner) for n in range(3)])
    await asyncio.sleep(0)
    assert engine.revoke(owner) == 2
    gate.set()
    event = await asyncio.wait_for(events.get(), 60)
    assert (event.offset, event.status, began) == (0, RELEASED, [0])
    await engine.close(0)


async def test_closing_releases_what_waits_and_what_runs():
    engine = AsyncExecutionEngine(hangs, ExecutionConfig(max_in_flight=1))
    events = []
    engine.connect(events.append)
    engine.submit([record(0), record(1)])
    await engine.close(0)
    assert [(event.status, event.offset) for event in events] == [(RELEASED, 1), (RELEASED, 0)]


# ---------------------------------------------------------------------- processes


async def test_a_worker_process_that_dies_costs_its_own_work_item_a_run_and_nobody_else():
    items = [record(n, value=value) for n, value in enumerate([b"a", b"poison", b"b", b"c", b"d"])]
    found = await completions(ProcessExecutionEngine, workers.dies_if_poison, items, process_count=2)
    by_offset = {event.offset: event for event in found}
    assert by_offset.pop(1).disposition == "worker_died"
    assert {event.status for event in by_offset.values()} == {SUCCESS}
    assert {event.attempt for event in by_offset.values()} == {1}


async def test_every_worker_process_may_have_one_work_item_ahead_which_is_released_like_the_others(monkeypatch):
    monkeypatch.setattr("redrive.engine.runners.pace._IN_A_ROW", 0)
    engine = ProcessExecutionEngine(workers.hangs, ExecutionConfig(process_count=2))
    events = []
    engine.connect(events.append)
    engine.prepare()
    assert await comes_true(lambda: len(engine.runner._idle) == 2)
    engine.submit([record(n) for n in range(5)])
    assert [child.ahead is not None for child in engine.runner._children] == [True, True]

    await engine.close(0)
    assert sorted((event.offset, event.status) for event in events) == [(n, RELEASED) for n in range(5)]


async def test_a_work_item_whose_process_was_killed_once_is_handled_after_all(tmp_path):
    event = await one(ProcessExecutionEngine, workers.dies_once, record(value=str(tmp_path / "flag").encode()))
    assert event.status == SUCCESS


async def test_an_error_that_cannot_travel_is_a_failure_with_its_text():
    event = await one(ProcessExecutionEngine, workers.raises_what_cannot_travel, max_retries=1)
    assert event.error == "RuntimeError: with a lock inside"


async def test_a_worker_process_sees_the_record_as_it_is():
    item = record(9, None, b"", of=partition(3), headers=[("a", None), ("a", b"\xff")], timestamp=12)
    assert (await one(ProcessExecutionEngine, workers.sees_everything, item, max_retries=1)).error is None


def test_a_worker_that_no_process_can_import_is_refused():
    with pytest.raises(HandlerError, match="a lambda"):
        ProcessExecutionEngine(lambda record: None, ExecutionConfig())


def test_a_worker_that_takes_no_record_is_refused():
    with pytest.raises(HandlerError, match="one record"):
        AsyncExecutionEngine(lambda: None, ExecutionConfig())
