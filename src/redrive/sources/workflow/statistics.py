"""
The numbers of the workflow queue.

Owns every key of `get_statistics` and how it is read from the store's maintained counts: a queue of a hundred
thousand tasks costs what one of a hundred costs. Knows no letter but those that run now.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from redrive.core.following import is_never
from redrive.core.letter import Category
from redrive.sources.workflow import mapping, policies
from redrive.sources.workflow.policies import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.core.letter import Letter
    from redrive.stores.contract import Tally, WorkerBeat

LIFETIME = ("enqueued_total", "retry_success", "retry_failed", "exhausted", "manually_retried", "archived")
_LIVE = ("pending", "in_flight", "failed")


def size_of(tallies: Iterable[Tally], queue: str) -> int:
    """Return how many tasks of *queue* are neither archived nor completed."""
    return sum(tally.count for tally in _mine(tallies, queue) if tally.status in _LIVE)


def is_any_running(tallies: Iterable[Tally], queue: str) -> bool:
    """Whether a task of *queue* runs now."""
    return any(tally.count for tally in _mine(tallies, queue) if tally.status == "in_flight")


def statistics(
    tallies: list[Tally],
    running: list[Letter],
    counters: dict[str, int],
    workers: list[WorkerBeat],
    *,
    queue: str,
    max_size: int,
    interval: float,
) -> dict[str, Any]:
    """Return every key, zeros included."""
    mine = _mine(tallies, queue)
    size = size_of(mine, queue)
    is_running = any(beat.alive and beat.handles(queue, mapping.KIND) for beat in workers)
    return {
        "queue_size": size,
        "max_size": max_size,
        "utilization_percent": round(100 * size / max_size, 2),
        "status_breakdown": _statuses(mine),
        "error_categories": _categories(mine, running),
        "retry_policies": _policies(mine, running),
        "lifetime_stats": {name: counters.get(name, 0) for name in LIFETIME} | {"enqueued_total": _enqueued(mine)},
        "is_processor_running": is_running,
        "retry_interval_seconds": interval,
    }


def _mine(tallies: Iterable[Tally], queue: str) -> list[Tally]:
    return [tally for tally in tallies if tally.queue == queue and tally.kind == mapping.KIND]


def _enqueued(tallies: list[Tally]) -> int:
    return sum(tally.count for tally in tallies if tally.status == "enqueued")


def _statuses(tallies: list[Tally]) -> dict[str, int]:
    found: Counter[str] = Counter(dict.fromkeys(("pending", "retrying", "exhausted", "completed", "archived"), 0))
    for tally in tallies:
        if tally.status == "failed":
            found["pending" if is_never(tally.policy) else "exhausted"] += tally.count
        elif (word := _WORDS.get(tally.status)) is not None:
            found[word] += tally.count
    return dict(found)


_WORDS = {"pending": "pending", "in_flight": "retrying", "delivered": "completed", "archived": "archived"}


def _categories(tallies: list[Tally], running: list[Letter]) -> dict[str, int]:
    found: Counter[str] = Counter(dict.fromkeys(map(str, Category), 0))
    for tally in tallies:
        if tally.status in ("pending", "failed") and tally.category:
            found[tally.category] += tally.count
    found.update(letter.category for letter in running if letter.category)
    return dict(found)


def _policies(tallies: list[Tally], running: list[Letter]) -> dict[str, int]:
    found: Counter[str] = Counter(dict.fromkeys(map(str, RetryPolicy), 0))
    for tally in tallies:
        if tally.status == "failed" or (tally.status == "pending" and tally.policy):
            found[str(policies.word_of(tally.policy))] += tally.count
    found.update(str(policies.word_of(letter.applied_policy or letter.policy)) for letter in running)
    return dict(found)
