"""
Breakers as the retries of workflows use them.

Owns whether a task may begin: the breaker that it names is asked right before its callback runs, so that no try is
spent once it opened. Knows no letter; `core.breaker` has the rules, the store shares the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.core.breaker import BreakerRules, BreakerState
from redrive.core.decide import Failed, Succeeded
from redrive.core.why import Why

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redrive.core.breaker import Breaker
    from redrive.core.decide import Outcome
    from redrive.stores.contract import Store

_ASK_AGAIN = 1.0  # seconds until a half-open breaker that lets no more through is asked again


class Breakers:
    """The breakers that the tasks of one processor name."""

    def __init__(self, rules: Mapping[str, BreakerRules]) -> None:
        self._rules = rules
        self._known: dict[str, Breaker] = {}

    async def look(self, store: Store) -> None:
        """Read all breakers, at the start of a cycle."""
        self._known = await store.breakers()

    def rules_of(self, name: str) -> BreakerRules:
        """Return the rules of the breaker *name*."""
        return self._rules.get(name) or BreakerRules()

    async def hold(self, store: Store, name: str) -> float | None:
        """Return for how many seconds *name* holds a task that is about to begin; None lets it begin."""
        known = self._known.get(name)
        if not name or known is None or known.state is BreakerState.CLOSED:
            return None
        if known.state is BreakerState.OPEN and known.rest > 0:
            return known.rest
        allowed = await store.probe(name, self.rules_of(name), 1)
        return None if allowed else _ASK_AGAIN

    async def learn(self, store: Store, name: str, outcome: Outcome) -> None:
        """Report what a task says about the dependency *name*; one that can never succeed says nothing."""
        good = isinstance(outcome, Succeeded)
        bad = isinstance(outcome, Failed) and not outcome.failure.terminal
        if not name or not (good or bad):
            return
        rules = self.rules_of(name)
        await store.report(name, rules, successes=int(good), failures=int(bad))
        self._known[name] = (await store.breakers())[name]


def held_by(name: str) -> str:
    """Return the reason that a held letter carries."""
    return Why.HELD_BY_BREAKER.naming(repr(name))
