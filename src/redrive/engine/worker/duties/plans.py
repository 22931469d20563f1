"""
Carrying out the plans of operators.

Owns one worker's part: it finds plans that run and that no other process holds, and carries each out page by page, so
that a pause, a halt or another rate takes effect between two pages. `core/plan.py` has the rules. Knows no verb.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from redrive.core.facts import fact_of_act
from redrive.core.plan import PlanState, lease_for, page_size, rest_after
from redrive.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.facts import Fact
    from redrive.core.plan import Plan
    from redrive.engine.clock import Clock
    from redrive.stores.contract import Store

_LOOK = 0.5  # seconds between two looks for plans: the caller of a plan waits a second for a worker to take it


class PlanCarrier:
    """Carries out plans in the name of *worker*."""

    def __init__(self, store: Store, worker: str, announce: Callable[[Fact], None], clock: Clock) -> None:
        self._store, self._worker, self._announce, self._clock = store, worker, announce, clock
        self._next: dict[str, float] = {}  # by plan that this worker holds: when its next page may begin

    async def run(self) -> None:
        """Carry out every plan that comes, until this is cancelled; then let go of every plan."""
        try:
            while True:
                rest = _LOOK
                with contextlib.suppress(StoreError):
                    rest = await self.once()
                await self._clock.sleep(rest)
        finally:
            await self._let_go()

    async def once(self) -> float:
        """Act on one page of each plan that is for this worker; return for how many seconds there is nothing to do."""
        running = await self._store.plans(PlanState.RUNNING)
        mine = [plan for plan in running if not plan.held or plan.holder == self._worker]
        self._next = {plan.id: self._next.get(plan.id, 0.0) for plan in mine}
        for plan in mine:
            if self._next[plan.id] <= self._clock.monotonic():
                await self._step(plan)
        soonest = min(self._next.values(), default=self._clock.monotonic() + _LOOK)
        return min(_LOOK, max(0.0, soonest - self._clock.monotonic()))

    async def is_left(self) -> bool:
        """Say whether a plan runs, in this process or in another."""
        return bool(await self._store.plans(PlanState.RUNNING, limit=1))

    async def _step(self, plan: Plan) -> None:
        step = await self._store.step(
            plan.id, limit=page_size(plan.rate), worker=self._worker, lease=lease_for(plan.rate)
        )
        if step.acted:
            fact = fact_of_act(plan.verb, len(step.acted), by=plan.by, reason=plan.reason, plan=plan.id)
            self._announce(fact)
        if step.plan.state is PlanState.RUNNING and step.plan.holder == self._worker:
            self._next[plan.id] = self._clock.monotonic() + rest_after(len(step.acted), plan.rate)
        else:
            del self._next[plan.id]

    async def _let_go(self) -> None:
        """Let another process go on at once; a store that is away finds out by the lease."""
        for plan_id in self._next:
            with contextlib.suppress(StoreError):
                await self._store.step(plan_id, limit=0, worker=self._worker)
