"""
A store whose letters are traced.

Owns the spans of enqueue, claim and settle, one for each call and not for each letter, because the engine works in
batches. A claim that finds nothing makes no span. Everything else goes to the store as it is. Knows no rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redrive.core.letter import Draft
    from redrive.core.moves import Move
    from redrive.signals.otel.telemetry import OpenTelemetry
    from redrive.stores.contract import Claim, Exchanged, Features, Receipt, Store, Want


class TracedStore:
    """A `Store` that tells *telemetry* what goes in and out of *store*."""

    def __init__(self, store: Store, telemetry: OpenTelemetry) -> None:
        self.traced, self._telemetry = store, telemetry

    @property
    def features(self) -> Features:
        """What the store promises now: some learn it when they are opened."""
        return self.traced.features

    async def put(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Keep *drafts*, each with the trace that it belongs to."""
        with self._telemetry.enqueuing(drafts) as marked:
            return await self.traced.put(marked)

    async def claim(self, wants: Sequence[Want], *, lease: float, worker: str) -> list[Claim]:
        """Claim."""
        began = self._telemetry.now()
        claims = await self.traced.claim(wants, lease=lease, worker=worker)
        self._telemetry.claimed(claims, began)
        return claims

    async def settle(self, settlements: Sequence[tuple[Claim, Move]]) -> tuple[bool, ...]:
        """Settle."""
        began = self._telemetry.now()
        accepted = await self.traced.settle(settlements)
        self._telemetry.settled(settlements, accepted, began)
        return accepted

    async def settle_counted(self, claim: Claim, move: Move, name: str, amounts: Mapping[str, int]) -> bool:
        """Settle and count."""
        began = self._telemetry.now()
        accepted = await self.traced.settle_counted(claim, move, name, amounts)
        self._telemetry.settled([(claim, move)], (accepted,), began)
        return accepted

    async def exchange(
        self, settlements: Sequence[tuple[Claim, Move]], wants: Sequence[Want], *, lease: float, worker: str
    ) -> Exchanged:
        """Settle and claim in one call; a span for each of both."""
        began = self._telemetry.now()
        exchanged = await self.traced.exchange(settlements, wants, lease=lease, worker=worker)
        self._telemetry.settled(settlements, exchanged.accepted, began)
        self._telemetry.claimed(exchanged.claims, began)
        return exchanged

    def __getattr__(self, name: str) -> Any:
        """Give what the store gives."""
        return getattr(self.traced, name)
