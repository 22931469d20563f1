"""
Retention: removing what is past its time.

Owns one step of it, of bounded size, in one transaction. Knows no schedule: a worker calls it again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.stores.contract import Retention
    from redrive.stores.postgres.server.transaction import Transaction


async def retain(transaction: Transaction, retention: Retention, limit: int) -> int:
    """Look at some letters and remove those past their time."""
    kept = (retention.delivered, retention.archived, retention.failed)
    await transaction.rows("make_sure")  # a worker that is never out of work makes sure here
    removed = int(await transaction.value("retain", *kept, limit, transaction.now.wall))
    await transaction.value("retain_handled", retention.handled, limit, transaction.now.wall)
    return removed
