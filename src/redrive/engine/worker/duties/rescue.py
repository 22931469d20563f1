"""
Take back letters whose worker died.

Owns the step from an expired claim to its next move: the loss is decided like every other outcome, settled, and
then announced. When a claim expires is the store's knowledge; what a loss means is a rule of `core.decide`, and which
letters had not begun is known by `suspects`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from redrive.core.decide import Lost
from redrive.core.why import Why
from redrive.engine.worker.facts import facts_of
from redrive.engine.worker.faults import NO_LETTERS
from redrive.failpoints import hit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redrive.core.decide import Outcome
    from redrive.core.facts import Fact
    from redrive.engine.worker.deciding import Deciding
    from redrive.engine.worker.faults import Faults
    from redrive.engine.worker.suspects import Suspects
    from redrive.stores.contract import Claim, Store


async def rescue(
    store: Store,
    deciding: Deciding,
    suspects: Suspects,
    faults: Faults,
    announce: Callable[[Fact], None],
    *,
    limit: int,
) -> int:
    """Take back up to *limit* lost letters; return how many, 0 if one could not be settled."""
    claims = await store.expired(limit)
    hit("rescue.before_settle")
    if not claims:
        return 0
    lost = deciding.moves(list(_outcomes(claims, suspects)))
    try:
        accepted, settled = await store.settle(lost), len(lost)
    except NO_LETTERS:
        raise
    except Exception:  # noqa: BLE001 - a fault of ours, at one of them
        lost, accepted = await faults.settle_each(store, lost)
        settled = 0  # a letter that could not be settled comes again: not in this sweep
    hit("rescue.after_settle")
    for fact in facts_of(lost, accepted):
        announce(fact)
    return settled


def _outcomes(claims: Sequence[Claim], suspects: Suspects) -> Iterator[tuple[Claim, Outcome]]:
    held = Counter(claim.letter.worker for claim in claims)
    for claim in claims:
        worker = claim.letter.worker
        had_begun = not suspects.had_not_begun(claim, held[worker])
        yield claim, Lost(Why.WORKER_DIED.naming(str(worker)), had_begun)
