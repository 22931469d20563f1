"""
Refusing what a store does not promise.

Owns the sentences, the same for every store: what cannot be kept, and the way out. A store that promises less than
others calls these functions before it keeps anything. Knows no store: `Features` says what one promises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.errors import NotSupported

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.core.letter import Draft
    from redrive.stores.contract import Features, QueueSpec


def refuse_drafts(features: Features, drafts: Iterable[Draft]) -> None:
    """Raise NotSupported for a draft that a store with these *features* cannot keep as it is meant."""
    if features.waits and features.retries:
        return
    for draft in drafts:
        if draft.after and not features.waits:
            raise NotSupported(
                f"cannot keep letter {draft.id!r}, which waits for others, in this store; "
                "enqueue it when they are delivered, or use a store whose letters can wait"
            )
        if draft.retry and not features.retries:
            raise NotSupported(
                f"cannot keep letter {draft.id!r}, which failed elsewhere and waits for its retry, in this store; "
                "put it without its failure, or as a dead letter and replay it"
            )


def refuse_specs(features: Features, specs: Iterable[QueueSpec]) -> None:
    """Raise NotSupported for a queue whose settings a store with these *features* would not keep to."""
    for spec in specs:
        if spec.ordered and not features.ordered:
            raise NotSupported(
                f"cannot keep order per key in queue {spec.name!r}: this store does not promise it; "
                "leave ordered out, or use a store that does"
            )
        if (spec.rate is not None or spec.max_in_flight is not None) and not features.limits:
            raise NotSupported(
                f"cannot limit queue {spec.name!r}: this store keeps no rate and no max_in_flight over all workers; "
                "leave both out, or use a store that does"
            )
