"""
Count everything.

Owns the books and the breakdowns operators watch. All numbers but the weeks' come from one snapshot
of the store's maintained counts, never from a scan; the weeks are counted along an index, up to a
limit. Knows no terminal and no metrics library.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from redrive.core.letter import instant
from redrive.core.query import parse
from redrive.stores.contract import Histories, books, orphans

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redrive.core.letter import Letter
    from redrive.stores.contract import Store, Tally, WorkerBeat


WEEKS = 8  # that are looked back on
MOST_A_WEEK = 10_000  # more are not triaged by hand, and counting them would only take time


class OldestFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letter that has waited longest."""

    id: str
    kind: str
    queue: str
    failed_at: datetime | None


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker seen lately."""

    name: str
    alive: bool
    in_flight: int
    kinds: list[str]
    seen_at: datetime


class BreakerView(msgspec.Struct, frozen=True, kw_only=True):
    """The circuit breaker of one dependency."""

    name: str
    state: str


class FailedWeek(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters by when they died: in the last seven days (0 weeks ago), in the seven before (1), and so on."""

    weeks_ago: int
    failed: int
    more: bool  # there are more than that; they were not counted


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The books, and what they are made of."""

    books: dict[str, int]
    balanced: bool
    by_queue: dict[str, dict[str, int]]
    by_kind: dict[str, dict[str, int]]
    failed_by_category: dict[str, int]
    failed_by_policy: dict[str, int]
    failed_by_error: dict[str, int]
    failed_by_week: list[FailedWeek]  # of those that are failed now; newest first
    oldest_failed: OldestFailed | None
    histories: Histories  # how often letters were replayed
    orphaned: dict[str, dict[str, int]]  # by queue and kind: pending letters that no live worker takes from there
    paused: list[str]
    workers: list[WorkerView]
    breakers: list[BreakerView]


async def stats(store: Store, *, weeks: int = WEEKS) -> Stats:
    """Return the books and their breakdowns, and what failed in each of the last *weeks*."""
    tallies = await store.tallies()
    workers = await store.workers()
    kept = books(tallies)
    return Stats(
        books=dict(kept),
        balanced=is_balanced(kept),
        by_queue=_by(tallies, "queue"),
        by_kind=_by(tallies, "kind"),
        failed_by_category=_failed_by(tallies, "category"),
        failed_by_policy=_failed_by(tallies, "policy"),
        failed_by_error=_failed_by(tallies, "error_type"),
        failed_by_week=[await _week(store, ago) for ago in range(weeks)],
        oldest_failed=_oldest(await store.oldest_failed()),
        histories=await store.histories(),
        orphaned=_orphaned(tallies, workers),
        paused=[state.spec.name for state in await store.queues() if state.paused],
        workers=[_worker(beat) for beat in workers],
        breakers=await _breakers(store),
    )


async def _week(store: Store, ago: int) -> FailedWeek:
    since = f" failed:>={ago * 7}d" if ago else ""
    found = await store.count(parse(f"status:failed failed:<{(ago + 1) * 7}d{since}"), at_most=MOST_A_WEEK + 1)
    return FailedWeek(weeks_ago=ago, failed=min(found, MOST_A_WEEK), more=found > MOST_A_WEEK)


def is_balanced(kept: Mapping[str, int]) -> bool:
    """Say whether every letter that was enqueued is accounted for."""
    return kept["enqueued"] == sum(count for name, count in kept.items() if name != "enqueued")


def _orphaned(tallies: Sequence[Tally], workers: Sequence[WorkerBeat]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for (queue, kind), count in orphans(tallies, workers).items():
        table.setdefault(queue, {})[kind] = count
    return table


def _by(tallies: Sequence[Tally], trait: str) -> dict[str, dict[str, int]]:
    table: dict[str, Counter[str]] = {}
    for tally in tallies:
        table.setdefault(getattr(tally, trait), Counter())[tally.status] += tally.count
    return {name: dict(sorted(counts.items())) for name, counts in sorted(table.items())}


def _failed_by(tallies: Sequence[Tally], trait: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for tally in tallies:
        if tally.status == "failed" and tally.count:
            counts[getattr(tally, trait)] += tally.count
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _oldest(letter: Letter | None) -> OldestFailed | None:
    if letter is None:
        return None
    return OldestFailed(id=letter.id, kind=letter.kind, queue=letter.queue, failed_at=letter.failed_at)


def _worker(beat: WorkerBeat) -> WorkerView:
    return WorkerView(
        name=beat.name,
        alive=beat.alive,
        in_flight=beat.in_flight,
        kinds=list(beat.kinds),
        seen_at=instant(beat.seen_us),
    )


async def _breakers(store: Store) -> list[BreakerView]:
    found = await store.breakers()
    return [BreakerView(name=name, state=str(breaker.state)) for name, breaker in sorted(found.items())]
