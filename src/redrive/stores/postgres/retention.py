"""
Retention: removing what is past its time.

Owns one step of it, of bounded size, in one transaction, and how far it has looked among the plans. Knows no schedule:
a worker calls it again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.core.plan import is_over
from redrive.stores.postgres.desk.planning import plan_decoder

if TYPE_CHECKING:
    from redrive.stores.contract import Retention
    from redrive.stores.postgres.server.transaction import Transaction

_PLANS = 200  # read and decoded in one call
_CURSOR = ("retention", "plans")  # where it is kept


async def retain(transaction: Transaction, retention: Retention, limit: int) -> int:
    """Look at some letters and remove those past their time."""
    kept = (retention.delivered, retention.archived, retention.failed)
    await transaction.rows("make_sure")  # a worker that never rests makes sure here
    removed = int(await transaction.value("retain", *kept, limit, transaction.now.wall))
    await transaction.value("retain_handled", retention.handled, limit, transaction.now.wall)
    if retention.plans is not None:
        await _forget_plans(transaction, retention.plans, min(limit, _PLANS))
    return removed


async def _forget_plans(transaction: Transaction, seconds: float, limit: int) -> None:
    """Forget plans that ended *seconds* ago or earlier, of the next *limit*."""
    cursor = (await transaction.value("read_state", *_CURSOR) or b"").decode()
    page = await transaction.rows("plans_page", cursor, limit)
    before_us = await transaction.now_us() - round(seconds * 1e6)
    over = [row["id"] for row in page if is_over(plan_decoder.decode(row["value"]), before_us)]
    if over:
        await transaction.rows("forget_plans", over)
    ahead = page[-1]["id"] if len(page) == limit else ""
    if ahead != cursor:
        await transaction.rows("write_state", *_CURSOR, ahead.encode())
