"""
Pause and resume queues, and list them.

A pause stops claims, not letters under way; it is written with its audit entry. Knows no terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from redrive.stores.contract import total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.stores.contract import QueueState, Store, Tally


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, what it was declared to be and what it holds."""

    name: str
    paused: bool
    paused_by: str
    reason: str
    ordered: bool
    max_size: int | None
    rate: float | None
    max_in_flight: int | None
    pending: int
    in_flight: int
    failed: int


class Queues(msgspec.Struct, frozen=True, kw_only=True):
    """Every queue that was declared or has letters."""

    queues: list[QueueView]


async def queues(store: Store) -> Queues:
    """Return every queue, by name."""
    states, tallies = await store.queues(), await store.tallies()
    return Queues(queues=[_view(state, tallies) for state in states])


async def pause(store: Store, queue: str, *, by: str, reason: str = "") -> None:
    """Let no worker begin letters of *queue* until it is resumed."""
    await store.pause(queue, paused=True, by=by, reason=reason)


async def resume(store: Store, queue: str, *, by: str, reason: str = "") -> None:
    """Let workers begin letters of *queue* again."""
    await store.pause(queue, paused=False, by=by, reason=reason)


def _view(state: QueueState, tallies: Sequence[Tally]) -> QueueView:
    spec = state.spec
    return QueueView(
        name=spec.name,
        paused=state.paused,
        paused_by=state.paused_by,
        reason=state.reason,
        ordered=spec.ordered,
        max_size=spec.max_size,
        rate=spec.rate,
        max_in_flight=spec.max_in_flight,
        pending=total(tallies, queue=spec.name, status="pending"),
        in_flight=total(tallies, queue=spec.name, status="in_flight"),
        failed=total(tallies, queue=spec.name, status="failed"),
    )
