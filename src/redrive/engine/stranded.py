"""
Letters whose `after` will not come.

Owns what a worker does about them at every sweep: those of `after_failure` run go on, and those of `after_failure`
fail are failed without a run. Knows no rule: `core.decide` has the move, the store says which letters are concerned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.core.decide import after_dead
from redrive.engine.worker.facts import facts_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redrive.core.facts import Fact
    from redrive.core.moves import Move
    from redrive.stores.contract import Claim, Store

_LIMIT = 200  # letters that one sweep fails
_GONE = "one that is no longer kept"


async def fail_stranded(
    store: Store,
    announce: Callable[[Fact], None],
    *,
    worker: str,
    lease: float,
    queue: str | None = None,
    settle: Callable[[Claim, Move], Awaitable[bool]] | None = None,
) -> list[tuple[Claim, Move]]:
    """
    Let go what runs after a failure, fail what fails with it, in all queues or in one; return what was failed.

    *settle* carries out a move instead of `Store.settle`, for a source that counts in the same transaction.
    """
    if not store.features.waits:
        return []
    failed: list[tuple[Claim, Move]] = []
    for letter_id in await store.stranded(_LIMIT, queue=queue):
        standing = await store.standing(letter_id)
        claim = await store.take(letter_id, lease=lease, worker=worker, waiting=True)
        if standing is None or claim is None:
            continue  # another worker was first
        dead = [f"{other} ({status})" if status else _GONE for other, status in standing.after]
        letter = claim.letter
        move = after_dead(", ".join(dead), letter.applied_policy or letter.policy or "")
        accepted = await settle(claim, move) if settle is not None else (await store.settle([(claim, move)]))[0]
        for fact in facts_of([(claim, move)], (accepted,)):
            announce(fact)
        failed += [(claim, move)] if accepted else []
    return failed
