"""
Give failed letters another cycle.

A replay keeps id and idempotency key and appends the ended cycle to `failure_history`.
Letters named by id go together or not at all; letters named by a query go by a plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.desk.act import act

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.desk.act import Done
    from redrive.stores.contract import Store


async def replay(
    store: Store,
    ids: Sequence[str] = (),
    *,
    query: str = "",
    by: str,
    reason: str = "",
    limit: int | None = None,
    rate: float | None = None,
    generation: int | None = None,
) -> Done:
    """
    Replay the failed letters *ids*, or those that match *query*.

    *limit* replays at most so many of the query's letters (a canary), *rate* at most so many a second.
    Raise LetterNotFound or MoveRefused, and then none of *ids* was replayed.
    """
    return await act(
        store, "replay", ids, query=query, by=by, reason=reason, limit=limit, rate=rate, generation=generation
    )
