"""
Breakers as a worker uses them: what may be claimed, and what was learned.

Owns this worker's view of the shared breakers, and the outcomes that it has not reported yet. When a breaker opens
or closes is a rule of `core.breaker`; the store shares the state between workers. Knows no
slot and no engine.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from redrive.core.breaker import Breaker, BreakerRules, BreakerState
from redrive.core.decide import Interrupted
from redrive.core.facts import BreakerClosed, BreakerOpened
from redrive.core.letter import Status
from redrive.core.why import Why
from redrive.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redrive.core.facts import Fact
    from redrive.engine.handler import Handler
    from redrive.engine.worker.deciding import Settlement
    from redrive.stores.contract import Store


_NEXT_PROBES = 1.0  # seconds until a half-open breaker is asked again


class Dependencies:
    """The breakers that this worker's handlers name."""

    def __init__(self, store: Store, rules: Mapping[str, BreakerRules], announce: Callable[[Fact], None]) -> None:
        self._store, self._rules, self._announce = store, rules, announce
        self._known: dict[str, Breaker] = {}
        self._seen: dict[str, list[int]] = {}  # successes and failures not yet reported
        self._probes: dict[str, int] = {}  # let through by the store and not yet used
        self._newer: set[str] = set()  # breakers of which a report told more than a look that is under way

    def learned(self, name: str, *, succeeded: bool) -> None:
        """Note an outcome of a letter that needs *name*."""
        self._seen.setdefault(name, [0, 0])[0 if succeeded else 1] += 1

    def learn(self, settled: Sequence[Settlement], handlers: Mapping[str, Handler]) -> None:
        """Note what settled letters say about the breakers of their handlers."""
        for claim, move in settled:
            breaker = handlers[claim.letter.kind].breaker
            if breaker is None:
                continue
            if move.to is Status.DELIVERED:
                self.learned(breaker, succeeded=True)
            elif move.failure is not None and not move.failure.terminal:
                # A letter that can never succeed says nothing about the dependency.
                self.learned(breaker, succeeded=False)

    def limit(self, name: str) -> int | None:
        """Return how many letters may be claimed for *name*; None is no limit."""
        breaker = self._known.get(name)
        if breaker is None or breaker.state is BreakerState.CLOSED:
            return None
        return self._probes.get(name, 0)

    def admits(self, name: str) -> bool:
        """Whether a letter that was claimed for *name* may run; uses up a probe if it needs one."""
        left = self.limit(name)
        if left:
            self._probes[name] = left - 1
        return left != 0

    def is_open(self, name: str) -> bool:
        """Whether letters that need *name* should go back."""
        breaker = self._known.get(name)
        return breaker is not None and breaker.state is BreakerState.OPEN

    def rest(self, name: str) -> float:
        """Return the seconds that letters held back for *name* should wait."""
        rest = self._rules[name].open_for
        return rest if self.is_open(name) else min(rest, _NEXT_PROBES)

    def hold(self, name: str) -> Interrupted:
        """Return the outcome of letters that *name* holds back."""
        return Interrupted(Why.HELD_BY_BREAKER.naming(repr(name)), wait=self.rest(name))

    async def report(self) -> None:
        """Report to the store what was learned; read back what all workers learned."""
        seen, self._seen = self._seen, {}
        for name, (successes, failures) in seen.items():
            with suppress(StoreUnavailable):  # by the time it is back these outcomes are too old to count
                now = await self._store.report(name, self._rules[name], successes=successes, failures=failures)
                self._newer.add(name)
                self._notice(name, now)

    async def look(self) -> None:
        """Read all breakers again, and ask the store for probes of those that are not closed."""
        if not self._rules:
            return
        self._newer.clear()
        for name, breaker in (await self._store.breakers()).items():
            if name in self._rules and name not in self._newer:  # else it would seem to close, and to open again
                self._notice(name, breaker)
        for name, breaker in list(self._known.items()):
            if breaker.state is not BreakerState.CLOSED:
                rules = self._rules[name]
                unused = self._probes.get(name, 0)
                more = await self._store.probe(name, rules, rules.probes - unused)
                self._probes[name] = self._probes.get(name, 0) + more  # letters may have used some during the call

    def _notice(self, name: str, now: Breaker) -> None:
        before, self._known[name] = self._known.get(name), now
        if now.state is not BreakerState.HALF_OPEN:
            self._probes.pop(name, None)
        was_open = before is not None and before.state is not BreakerState.CLOSED
        if now.state is BreakerState.OPEN and not was_open:
            rest = self._rules[name].open_for
            self._announce(BreakerOpened(breaker=name, failures=now.failures, successes=now.successes, rest=rest))
        elif now.state is BreakerState.CLOSED and was_open:
            self._announce(BreakerClosed(breaker=name))
