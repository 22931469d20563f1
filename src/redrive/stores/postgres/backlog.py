"""
What is left to do: letters that can run, letters that run, letters whose worker is gone.

Owns the looks that a worker takes between its rounds. Takes nothing: claims are `claiming`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.core.letter import age_of
from redrive.stores.contract import Backlog, Claim
from redrive.stores.postgres import rows
from redrive.stores.postgres.texts import name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.stores.contract import Want
    from redrive.stores.postgres.server.calls import Calls
    from redrive.stores.postgres.server.lease_clock import Ticker
    from redrive.stores.postgres.server.transaction import Turn


async def backlog(turn: Turn, wants: Sequence[Want]) -> Backlog:
    """Return what is left of these queues and kinds, of the one generation that the wants have."""
    pairs = {(name(want.queue), name(kind)) for want in wants for kind in want.kinds}
    queues, kinds = [queue for queue, _ in pairs], [kind for _, kind in pairs]
    generation = wants[0].generation if wants else None
    await turn.rows("place_arrivals", queues)  # lanes before letters: everybody locks in this order
    await turn.rows("make_sure")
    due, in_flight = await turn.row("left", queues, kinds, turn.now.wall, generation)
    return Backlog(due is not None, in_flight, None if due is None else max(0.0, due / 1e6))


async def some_ended(calls: Calls, ticker: Ticker) -> bool:
    """Move the clock of leases on, and return whether it has passed the end of one."""

    async def work(connection: Any, _again: bool) -> bool:  # noqa: FBT001 - every work is called like this
        tick = ticker.ask()
        [clock] = await calls.fetch(connection, "tick", tick.seen, tick.passed, calls.now().lease)
        ticker.heard(tick, clock)
        return bool(clock["over"])

    return await calls.ask(work)


async def expired(turn: Turn, limit: int) -> list[Claim]:
    """Return claims whose lease ended, the longest ended first."""
    found = await turn.rows("expired", turn.now.lease, limit)
    now_us = await turn.now_us() if found else 0
    letters = [(row[0], rows.letter_of(row, turn.whole)) for row in found]
    return [Claim(letter, seq, age_of(letter, now_us)) for seq, letter in letters]
