"""How many records run at once, by how they go."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.kafka.stage import running, until

from redrive.core.decide import SUCCEEDED, Failed
from redrive.core.letter import Category, Failure
from redrive.errors import SettingsError
from redrive.sources.kafka import ExecutionConfig, ParallelConsumer
from redrive.sources.kafka.environment import read_configs
from redrive.sources.kafka.execution.adaptive import AdaptiveEngine, ConcurrencyLimit, Window, next_limit

windows = st.builds(
    lambda ended, share, seconds, full: Window(ended, int(ended * share), seconds * ended, full),
    st.integers(0, 10_000),
    st.floats(0, 1),
    st.floats(0, 1e6),
    st.booleans(),
)
bounds = st.integers(1, 5000).flatmap(lambda most: st.tuples(st.integers(1, most), st.just(most)))


@given(bounds, st.lists(windows, max_size=50))
def test_whatever_is_seen_the_limit_stays_between_its_bounds(bounds, seen):
    least, most = bounds
    limit = ConcurrencyLimit(most)
    for window in seen:
        limit = next_limit(limit, window, least=least, most=most)
        assert least <= limit.now <= most


@given(bounds, st.integers(1, 1000), st.floats(0.0001, 100))
def test_while_all_is_well_and_all_places_are_taken_it_grows_to_its_upper_bound(bounds, ended, mean):
    least, most = bounds
    limit = ConcurrencyLimit(least)
    for _ in range(most + 1):
        grown = next_limit(limit, Window(ended, 0, ended * mean, full=True), least=least, most=most)
        assert grown.now > limit.now or grown.now == most
        limit = grown
    assert limit.now == most


@given(bounds, st.integers(10, 1000))
def test_while_tries_fail_it_falls_to_its_lower_bound(bounds, ended):
    least, most = bounds
    limit = ConcurrencyLimit(most)
    for _ in range(60):
        fallen = next_limit(limit, Window(ended, ended, ended * 0.01, full=True), least=least, most=most)
        assert fallen.now < limit.now or fallen.now == least
        limit = fallen
    assert limit.now == least


@given(bounds, windows)
def test_places_that_nobody_takes_are_not_made_more(bounds, seen):
    least, most = bounds
    idle = Window(seen.ended, seen.failed, seen.seconds, full=False)
    assert next_limit(ConcurrencyLimit(least), idle, least=least, most=most).now == least


def test_tries_that_take_much_longer_than_usual_make_it_less():
    limit = next_limit(ConcurrencyLimit(100), Window(100, 0, 1.0, full=True), least=1, most=100)
    assert (limit.now, limit.usual) == (100, 0.01)
    assert next_limit(limit, Window(100, 0, 2.0, full=True), least=1, most=100).now == 100
    assert next_limit(limit, Window(100, 0, 3.0, full=True), least=1, most=100).now == 75


def test_what_takes_no_time_is_never_too_slow():
    limit = ConcurrencyLimit(50, usual=0.00001)
    assert next_limit(limit, Window(100, 0, 0.1, full=True), least=1, most=100).now == 53


def test_a_dependency_that_has_become_slower_for_good_is_accepted_in_time():
    limit = ConcurrencyLimit(100, usual=0.01)
    lowest = 100
    for _ in range(200):
        limit = next_limit(limit, Window(100, 0, 5.0, full=True), least=10, most=100)
        lowest = min(lowest, limit.now)
    assert (lowest, limit.now) == (10, 100)


def test_one_failure_in_ten_is_borne():
    assert next_limit(ConcurrencyLimit(50), Window(100, 10, 1.0, full=True), least=1, most=100).now == 53
    assert next_limit(ConcurrencyLimit(50), Window(100, 11, 1.0, full=True), least=1, most=100).now == 37


class Inner:
    """An engine whose tries end when the test says so."""

    exhausted = False

    def __init__(self) -> None:
        self.started = []

    def start(self, handler, letter, ticket, done):
        self.started.append((ticket, done))

    def end(self, outcome, count):
        for _ in range(count):
            ticket, done = self.started.pop(0)
            done(ticket, outcome)


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self):
        return self.now


def failed(*, terminal):
    transient = Category.TRANSIENT
    return Failed(
        Failure(error_type="Any", message="no", category=transient, rule="test", terminal=terminal, fingerprint="f")
    )


@pytest.mark.parametrize(
    ("outcome", "slots"), [(SUCCEEDED, 40), (failed(terminal=False), 30), (failed(terminal=True), 40)]
)
def test_a_window_of_tries_sets_the_slots_of_its_owner_and_rejections_do_not_count(outcome, slots):
    owner, inner, clock, ended = SimpleNamespace(slots=40, running=40), Inner(), FakeClock(), []
    engine = AdaptiveEngine(inner, owner, 0, 1.0, clock)
    for n in range(20):
        engine.start(None, None, n, lambda ticket, outcome: ended.append(ticket))
    clock.now = 0.5
    inner.end(outcome, 19)
    assert owner.slots == 40  # the window is not over
    clock.now = 1.0
    inner.end(outcome, 1)
    assert owner.slots == slots
    assert ended == list(range(20))  # tickets come back as they were


def test_a_few_tries_say_nothing():
    owner, inner, clock = SimpleNamespace(slots=40, running=40), Inner(), FakeClock()
    engine = AdaptiveEngine(inner, owner, 0, 1.0, clock)
    for n in range(9):
        engine.start(None, None, n, lambda ticket, outcome: None)
    clock.now = 60.0
    inner.end(failed(terminal=False), 9)
    assert owner.slots == 40


def test_a_lower_bound_above_the_upper_one_is_refused():
    with pytest.raises(SettingsError, match="min_in_flight is 11 and must not exceed max_in_flight, 10"):
        ExecutionConfig(min_in_flight=11, max_in_flight=10)


def test_the_settings_are_read_from_the_environment():
    execution, _ = read_configs({"EXECUTION_ADAPTIVE_CONCURRENCY": "true", "EXECUTION_MIN_IN_FLIGHT": "5"})
    assert (execution.adaptive_concurrency, execution.min_in_flight) == (True, 5)


def test_before_it_runs_there_is_no_limit_to_tell():
    assert ParallelConsumer(["orders"], print, group="g").concurrency == 0


async def test_a_dependency_that_fails_gets_fewer_calls_at_once_and_more_when_it_is_well_again(stage):
    stage.create(partitions=2)
    broken, running_now, most = True, 0, 0

    async def worker(record):
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        await asyncio.sleep(0.002)
        running_now -= 1
        if broken and most == 64:  # it is well until as many as may have run at once
            raise ConnectionError("it is overloaded")

    execution = {
        "adaptive_concurrency": True, "max_in_flight": 64, "min_in_flight": 4, "adaptive_interval_ms": 20,
        "max_retries": 1000, "max_retry_backoff_ms": 5,
    }  # fmt: skip
    consumer = stage.consumer(worker, execution=execution)
    stage.produce([{"value": b"x"} for _ in range(5000)])
    async with running(consumer):
        await until(lambda: consumer.concurrency == 4)
        assert most == 64
        broken = False
        await until(lambda: consumer.concurrency > 20)
        await until(lambda: sum(stage.committed(number) or 0 for number in range(2)) == 5000)
    assert stage.dead_letters() == []
