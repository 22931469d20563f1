"""
What is counted.

Owns every metric's name, labels and meaning, which fact moves it, and what a scrape reads from the store. Labels are
few and their values bounded: never an id, a key or a message. Knows no exporter: `prometheus` is one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from redrive.core import facts
from redrive.core.breaker import BreakerState
from redrive.core.failures.describe import clean
from redrive.core.letter import Status
from redrive.core.why import Why, why_of
from redrive.stores.spooling import spool_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from redrive.core.facts import Fact
    from redrive.stores.contract import Store, Tally

OTHER = "other"
MOST_VALUES = 200  # of one label; all further values are counted together, as "other"
_LONGEST_VALUE = 120  # characters
_DELAYS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0)  # seconds
_LETTER = ("queue", "kind")


class Metric(msgspec.Struct, frozen=True):
    """One thing that is counted."""

    name: str
    type: Literal["counter", "histogram", "gauge"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


class Measure(NamedTuple):
    """An amount of one metric, for these values of its labels."""

    metric: str
    labels: tuple[str, ...]
    amount: float


FACT_METRICS = (  # counted by each process, from 0 when it starts
    Metric("redrive_letters_enqueued_total", "counter", _LETTER, "Letters that this process accepted."),
    Metric("redrive_letters_duplicate_total", "counter", _LETTER, "Letters that were enqueued and already kept."),
    Metric("redrive_letters_delivered_total", "counter", _LETTER, "Letters that were handled."),
    Metric(
        "redrive_letters_retried_total", "counter", (*_LETTER, "category"), "Tries that failed and will be repeated."
    ),
    Metric(
        "redrive_letters_died_total",
        "counter",
        (*_LETTER, "category", "error_type"),
        "Letters that became dead.",
    ),
    Metric(
        "redrive_letters_given_back_total",
        "counter",
        (*_LETTER, "why"),
        "Letters given back with their attempt; why: backoff, breaker, caution, engine, pause, shutdown, slow, other.",
    ),
    Metric(
        "redrive_letters_released_total",
        "counter",
        (*_LETTER, "why"),
        "The old name of redrive_letters_given_back_total; it goes with the next version.",
    ),
    Metric(
        "redrive_handler_seconds_total",
        "counter",
        _LETTER,
        "Seconds spent in handlers, failed tries included; over the letters delivered it is their mean.",
    ),
    Metric("redrive_letters_rescued_total", "counter", _LETTER, "Letters taken back from workers that died or hung."),
    Metric("redrive_letters_replayed_total", "counter", (), "Failed letters that operators replayed."),
    Metric("redrive_letters_archived_total", "counter", (), "Letters that operators archived or cancelled."),
    Metric("redrive_letters_restored_total", "counter", (), "Archived letters that operators restored."),
    Metric("redrive_letters_purged_total", "counter", ("by",), "Letters removed by an operator or by retention."),
    Metric("redrive_letters_edited_total", "counter", (), "Letters whose payload an operator replaced."),
    Metric("redrive_claims_lost_total", "counter", _LETTER, "Outcomes dropped because the claim was no longer held."),
    Metric("redrive_breakers_opened_total", "counter", ("breaker",), "Times that this process saw a breaker open."),
    Metric("redrive_breakers_closed_total", "counter", ("breaker",), "Times that this process saw a breaker close."),
    Metric("redrive_queues_paused_total", "counter", ("queue",), "Times that a queue was paused."),
    Metric("redrive_queues_resumed_total", "counter", ("queue",), "Times that a queue was resumed."),
    Metric("redrive_workers_started_total", "counter", (), "Workers that began to claim."),
    Metric("redrive_workers_stopped_total", "counter", (), "Workers that stopped in an orderly way."),
    Metric("redrive_handlers_abandoned_total", "counter", (), "Letters given back while their handlers ran on."),
    Metric(
        "redrive_orphans_seen_total",
        "counter",
        _LETTER,
        "Times that a kind was seen waiting without a handler.",
    ),
    Metric(
        "redrive_backoffs_unknown_total",
        "counter",
        _LETTER,
        "Names of backoff functions that letters carry and a worker does not know.",
    ),
    Metric(
        "redrive_workflow_tasks_total",
        "counter",
        ("queue", "event", "category", "policy"),
        "Failed workflows; event is enqueued, retried, succeeded, exhausted or archived.",
    ),
    Metric("redrive_faults_total", "counter", (), "Faults of redrive's own that a worker met and survived."),
    Metric("redrive_store_outages_total", "counter", (), "Times that this process lost its store."),
    Metric("redrive_store_recoveries_total", "counter", (), "Times that this process reached its store again."),
    Metric(
        "redrive_retry_delay_seconds",
        "histogram",
        _LETTER,
        "How long letters wait for their next try.",
        buckets=_DELAYS,
    ),
)

STORE_METRICS = (  # read from the store: the same from every process
    Metric("redrive_store_up", "gauge", (), "1 if the store answered; the metrics below are absent if it is 0."),
    Metric("redrive_letters", "gauge", (*_LETTER, "status"), "Letters by queue, kind and status."),
    Metric(
        "redrive_store_enqueued_total",
        "counter",
        _LETTER,
        "Letters accepted since the store was created.",
    ),
    Metric("redrive_store_purged_total", "counter", _LETTER, "Letters removed since the store was created."),
    Metric(
        "redrive_oldest_failed_timestamp_seconds",
        "gauge",
        (),
        "When the oldest dead letter died; absent if there is none.",
    ),
    Metric("redrive_history_largest_cycles", "gauge", (), "Cycles in the longest failure history of a letter."),
    Metric("redrive_history_long_letters", "gauge", (), "Letters whose failure history has more than five cycles."),
    Metric("redrive_queue_paused", "gauge", ("queue",), "1 while a queue is paused."),
    Metric("redrive_breaker_state", "gauge", ("breaker", "state"), "1 for the state a breaker is in, else 0."),
    Metric("redrive_workers_alive", "gauge", (), "Workers with a current heartbeat."),
)

SPOOL_METRICS = (  # read from the file of the spool, if there is one: also while the store is away
    Metric("redrive_spool_waiting", "gauge", (), "Letters in the spool that are not in their store yet."),
    Metric("redrive_spool_refused", "gauge", (), "Letters in the spool that their store refused; `redrive spool ls`."),
    Metric("redrive_spool_limit", "gauge", (), "How many letters the spool can hold."),
    Metric("redrive_spool_forwarded_total", "counter", (), "Letters that went from the spool into their store."),
    Metric("redrive_spool_duplicates_total", "counter", (), "Letters of the spool that their store already had."),
)

METRICS = (*FACT_METRICS, *STORE_METRICS, *SPOOL_METRICS)


# ---------------------------------------------------------------------- from facts


def measures(fact: Fact) -> Iterable[Measure]:
    """Return what *fact* adds."""
    return _MEASURES[type(fact)](fact)


def _letters(metric: str) -> Callable[[Any], Iterable[Measure]]:
    """Count the letters of a fact by queue and kind; a fact without a count is about one."""
    return lambda fact: (Measure(metric, (fact.queue, fact.kind), getattr(fact, "count", 1)),)


def _acts(metric: str) -> Callable[[Any], Iterable[Measure]]:
    return lambda fact: (Measure(metric, (), getattr(fact, "count", 1)),)


def _named(metric: str, label: str) -> Callable[[Any], Iterable[Measure]]:
    return lambda fact: (Measure(metric, (getattr(fact, label),), 1),)


def _enqueued(fact: facts.Enqueued) -> Iterable[Measure]:
    labels = (fact.queue, fact.kind)
    yield Measure("redrive_letters_enqueued_total", labels, fact.count - fact.duplicates)
    if fact.duplicates:
        yield Measure("redrive_letters_duplicate_total", labels, fact.duplicates)


def _delivered(fact: facts.Delivered) -> Iterable[Measure]:
    yield Measure("redrive_letters_delivered_total", (fact.queue, fact.kind), fact.count)
    yield Measure("redrive_handler_seconds_total", (fact.queue, fact.kind), fact.seconds)


def _retried(fact: facts.Retried) -> Iterable[Measure]:
    yield Measure("redrive_letters_retried_total", (fact.queue, fact.kind, str(fact.category)), 1)
    yield Measure("redrive_retry_delay_seconds", (fact.queue, fact.kind), fact.delay)


def _died(fact: facts.Died) -> Iterable[Measure]:
    labels = (fact.queue, fact.kind, str(fact.category), fact.error_type)
    yield Measure("redrive_letters_died_total", labels, 1)


def _given_back(fact: facts.GivenBack) -> Iterable[Measure]:
    for metric in ("redrive_letters_given_back_total", "redrive_letters_released_total"):
        yield Measure(metric, (fact.queue, fact.kind, _why(fact.why)), fact.count)


def _task(fact: facts.TaskMoved) -> Iterable[Measure]:
    yield Measure("redrive_workflow_tasks_total", (fact.queue, fact.event, fact.category, fact.policy), fact.count)


def _purged(fact: facts.Purged) -> Iterable[Measure]:
    yield Measure("redrive_letters_purged_total", ("retention" if fact.by == "retention" else "operator",), fact.count)


_GIVEN_BACK = {  # in one word, why a claim was given back
    Why.HELD_BY_BREAKER: "breaker",
    Why.GIVEN_BACK: "caution",  # lets a letter run alone whose worker died
    Why.WAITS_TO_RUN_ALONE: "caution",
    Why.WAITED_TOO_LONG: "slow",
    Why.QUEUE_PAUSED: "pause",
    Why.SHUTDOWN: "shutdown",
    Why.STOPPED: "shutdown",
    Why.TOO_MANY_THREADS: "engine",
    Why.NO_WORKER_PROCESS: "engine",
    Why.UNKNOWN_BACKOFF: "backoff",
}


def _why(reason: str) -> str:
    why = why_of(reason)
    return OTHER if why is None else _GIVEN_BACK.get(why, OTHER)


_MEASURES: dict[type, Callable[[Any], Iterable[Measure]]] = {
    facts.Enqueued: _enqueued,
    facts.Delivered: _delivered,
    facts.Retried: _retried,
    facts.Died: _died,
    facts.GivenBack: _given_back,
    facts.ClaimLost: _letters("redrive_claims_lost_total"),
    facts.Rescued: _letters("redrive_letters_rescued_total"),
    facts.BreakerOpened: _named("redrive_breakers_opened_total", "breaker"),
    facts.BreakerClosed: _named("redrive_breakers_closed_total", "breaker"),
    facts.QueuePaused: _named("redrive_queues_paused_total", "queue"),
    facts.QueueResumed: _named("redrive_queues_resumed_total", "queue"),
    facts.Replayed: _acts("redrive_letters_replayed_total"),
    facts.Archived: _acts("redrive_letters_archived_total"),
    facts.Restored: _acts("redrive_letters_restored_total"),
    facts.Purged: _purged,
    facts.Edited: _acts("redrive_letters_edited_total"),
    facts.WorkerStarted: _acts("redrive_workers_started_total"),
    facts.WorkerStopped: _acts("redrive_workers_stopped_total"),
    facts.Abandoned: _acts("redrive_handlers_abandoned_total"),
    facts.Orphaned: lambda fact: (Measure("redrive_orphans_seen_total", (fact.queue, fact.kind), 1),),
    facts.BackoffUnknown: _letters("redrive_backoffs_unknown_total"),
    facts.TaskMoved: _task,
    facts.Faulted: _acts("redrive_faults_total"),
    facts.StoreAway: _acts("redrive_store_outages_total"),
    facts.StoreBack: _acts("redrive_store_recoveries_total"),
}


# ---------------------------------------------------------------------- from a store


async def spool_readings(store: Store) -> list[Measure]:
    """Return what the spool in front of *store* holds now; nothing if it has none."""
    spool = spool_of(store)
    if spool is None:
        return []
    found = await spool.spooled()
    return [
        Measure("redrive_spool_waiting", (), found.waiting),
        Measure("redrive_spool_refused", (), found.refused),
        Measure("redrive_spool_limit", (), found.limit),
        Measure("redrive_spool_forwarded_total", (), found.forwarded),
        Measure("redrive_spool_duplicates_total", (), found.duplicates),
    ]


async def readings(store: Store) -> list[Measure]:
    """Return what *store* holds now, from its maintained counts: the cost does not grow with the letters."""
    found = [Measure("redrive_store_up", (), 1), *_tallied(await store.tallies())]
    oldest = await store.oldest_failed()
    if oldest is not None and oldest.failed_us is not None:
        found.append(Measure("redrive_oldest_failed_timestamp_seconds", (), oldest.failed_us / 1e6))
    histories = await store.histories()
    found.append(Measure("redrive_history_largest_cycles", (), histories.largest))
    found.append(Measure("redrive_history_long_letters", (), histories.long))
    found += [Measure("redrive_queue_paused", (state.spec.name,), state.paused) for state in await store.queues()]
    for name, breaker in (await store.breakers()).items():
        found += [Measure("redrive_breaker_state", (name, state), breaker.state is state) for state in BreakerState]
    alive = sum(beat.alive for beat in await store.workers())
    return [*found, Measure("redrive_workers_alive", (), alive)]


def _tallied(tallies: Sequence[Tally]) -> Iterator[Measure]:
    counts: Counter[tuple[str, str, str]] = Counter()
    for tally in tallies:
        counts[tally.queue, tally.kind, tally.status] += tally.count
    totals = {"enqueued": "redrive_store_enqueued_total", "purged": "redrive_store_purged_total"}
    for (queue, kind, status), count in sorted(counts.items()):
        if status in totals:
            yield Measure(totals[status], (queue, kind), count)
        elif status in list(Status):
            yield Measure("redrive_letters", (queue, kind, status), count)


# ---------------------------------------------------------------------- few series


class Bounded:
    """Bounds the number of series: each label has a maximum of values, cleaned and cut; the rest is "other"."""

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._seen: dict[str, dict[str, str]] = {}  # by label: what came, and how it is written

    def __call__(self, metric: Metric, values: tuple[str, ...]) -> tuple[str, ...]:
        """Return *values*, those beyond the bound replaced."""
        return tuple(self._one(label, value) for label, value in zip(metric.labels, values, strict=True))

    def _one(self, label: str, value: str) -> str:
        seen = self._seen.setdefault(label, {})
        if value not in seen:
            if len(seen) >= self._most:
                return OTHER
            seen[value] = clean(value, _LONGEST_VALUE)
        return seen[value]
