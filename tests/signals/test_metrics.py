"""What is counted: every fact, under the labels that the table promises, and never too many series."""

from __future__ import annotations

import re

import msgspec
import pytest
from tests.stores.samples import act, dead, give_up, settle_all

from redrive.core import facts
from redrive.core.facts import FACTS
from redrive.core.letter import Category, Draft
from redrive.signals.metrics import FACT_METRICS, METRICS, OTHER, STORE_METRICS, Bounded, Metric, measures, readings
from redrive.stores.clock import ManualClock
from redrive.stores.contract import QueueSpec, WorkerBeat
from redrive.stores.memory import MemoryStore

LABELS = {"queue", "kind", "category", "error_type", "why", "breaker", "by", "status", "state", "event", "policy"}
BY_NAME = {metric.name: metric for metric in METRICS}
FAILED = {"id": "a1", "queue": "mail", "kind": "welcome", "attempts": 2, "error_type": "OSError", "rule": "errno 28"}


def example(fact: type) -> facts.Fact:
    """Return a fact with something in every field."""
    values = {"str": "some", "int": 3, "float": 1.5, "Category": Category.NETWORK, "tuple[str, ...]": ("some",)}
    return fact(**{field.name: values[str(fact.__annotations__[field.name])] for field in msgspec.structs.fields(fact)})


@pytest.mark.parametrize("fact", FACTS)
def test_every_fact_is_counted_under_the_labels_of_its_metrics(fact):
    found = list(measures(example(fact)))
    assert found
    for measure in found:
        assert len(measure.labels) == len(BY_NAME[measure.metric].labels)
        assert measure.amount >= 0


def test_every_metric_of_facts_is_moved_by_some_fact():
    moved = {measure.metric for fact in FACTS for measure in measures(example(fact))}
    assert {metric.name for metric in FACT_METRICS} == moved


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_and_labels_keep_to_the_rules(metric: Metric):
    assert re.fullmatch(r"redrive_[a-z_]+", metric.name)
    assert (metric.type == "counter") == metric.name.endswith("_total")
    assert set(metric.labels) <= LABELS  # an id, a key or a message would make a series per letter
    assert metric.help.endswith(".")


def test_duplicates_are_not_counted_as_accepted():
    found = {m.metric: m.amount for m in measures(facts.Enqueued(queue="q", kind="k", count=5, duplicates=2))}
    assert found == {"redrive_letters_enqueued_total": 3, "redrive_letters_duplicate_total": 2}


@pytest.mark.parametrize(
    ("why", "word"),
    [
        ("held by breaker 'bank'", "breaker"),
        ("released", "caution"),
        ("given back", "caution"),
        ("waits to run alone", "caution"),
        ("waited too long for a slot", "slow"),
        ("its queue is paused", "pause"),
        ("shutdown", "shutdown"),
        ("stopped", "shutdown"),
        ("too many threads hang in handlers that ran out of time", "engine"),
        ("no worker process can start: it dies", "engine"),
        ("a reason of tomorrow", OTHER),
    ],
)
def test_the_reason_of_a_claim_given_back_is_one_of_a_few_words(why, word):
    found = list(measures(facts.GivenBack(queue="q", kind="k", why=why)))
    assert [measure.labels for measure in found] == [("q", "k", word)] * 2


def test_given_back_is_counted_under_its_old_name_too_for_one_version():
    found = {m.metric: m.amount for m in measures(facts.GivenBack(queue="q", kind="k", why="shutdown", count=3))}
    assert found == {"redrive_letters_given_back_total": 3, "redrive_letters_released_total": 3}
    assert facts.Released is facts.GivenBack


def test_a_purge_says_whether_somebody_did_it_or_time():
    [by_time] = measures(facts.Purged(count=4, by="retention"))
    [by_ana] = measures(facts.Purged(count=4, by="ana@ops"))
    assert (by_time.labels, by_ana.labels) == (("retention",), ("operator",))


def test_values_beyond_the_bound_are_counted_together():
    bounded, metric = Bounded(most=2), BY_NAME["redrive_breakers_opened_total"]
    assert [bounded(metric, (name,)) for name in "abcba"] == [("a",), ("b",), (OTHER,), ("b",), ("a",)]


def test_values_that_nobody_can_read_are_cleaned_and_cut():
    bounded, metric = Bounded(), BY_NAME["redrive_breakers_opened_total"]
    (hostile,) = bounded(metric, ("\ud800\x1b[2J" + "x" * 10_000,))
    hostile.encode()
    assert hostile.isprintable()
    assert len(hostile) <= 120


async def test_a_worker_counts_as_alive_until_it_signs_off_or_its_lease_ends():
    store = MemoryStore(clock := ManualClock())
    await store.open()

    async def alive() -> float:
        return {m.metric: m.amount for m in await readings(store)}["redrive_workers_alive"]

    for name in ("stays", "ends"):
        await store.extend(WorkerBeat(name=name, kinds=("welcome",)), [], lease=60)
    assert await alive() == 2
    await store.leave("ends")
    assert await alive() == 1
    clock.advance(61)
    assert await alive() == 0


async def test_a_history_that_grows_is_measured():
    store = MemoryStore(ManualClock())
    await store.open()
    await dead(store, "often", "once")
    for _ in range(6):
        await act(store, "replay", "often")
        await settle_all(store, give_up())
    await act(store, "replay", "once")
    read = {(m.metric, m.labels): m.amount for m in await readings(store)}
    assert (read["redrive_history_largest_cycles", ()], read["redrive_history_long_letters", ()]) == (6, 1)


async def test_a_store_is_read_from_its_counts():
    store = MemoryStore(ManualClock())
    await store.open()
    await store.declare([QueueSpec(name="mail")])
    await store.put([Draft(id=f"{n}", queue="mail", kind="welcome", payload=b"{}") for n in range(3)])
    await store.pause("mail", paused=True, by="ana", reason="a test")
    read = {(m.metric, m.labels): m.amount for m in await readings(store)}
    assert read["redrive_store_up", ()] == 1
    assert read["redrive_letters", ("mail", "welcome", "pending")] == 3
    assert read["redrive_store_enqueued_total", ("mail", "welcome")] == 3
    assert read["redrive_queue_paused", ("mail",)] == 1
    assert read["redrive_workers_alive", ()] == 0
    assert (read["redrive_history_largest_cycles", ()], read["redrive_history_long_letters", ()]) == (0, 0)
    assert not [name for name, _ in read if name == "redrive_oldest_failed_timestamp_seconds"]
    assert {name for name, _ in read} <= {metric.name for metric in STORE_METRICS}
