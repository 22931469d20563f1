"""
Retries paid from a queue's budget.

Owns what this process owes to the budgets: first tries earn, retries cost. When a budget is empty is a rule of
`core.budget`; the store shares it between workers. Knows no handler.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from redrive.core.decide import DELIVERED, SUCCEEDED, Failed, held_back, is_retry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redrive.core.budget import BudgetRules
    from redrive.core.decide import Outcome
    from redrive.engine.worker.deciding import Settlement
    from redrive.stores.contract import Claim, Store


class Budgets:
    """The budgets of the queues that have one; the others cost nothing here."""

    def __init__(self, store: Store, rules: Mapping[str, BudgetRules]) -> None:
        self._store, self._rules = store, rules
        self._firsts: Counter[str] = Counter()  # first tries that are not reported to a budget yet, by queue
        self._owed: Counter[str] = Counter()  # retries that no budget has paid for yet, by queue

    @property
    def any(self) -> bool:
        """Whether a queue has a budget."""
        return bool(self._rules)

    @property
    def owes(self) -> bool:
        """Whether there is something to pay."""
        return bool(self._owed)

    def count(self, outcomes: list[tuple[Claim, Outcome]], moves: list[Settlement]) -> None:
        """Count first tries that ran to an end, and the retries among *moves*."""
        tried = [claim.letter for claim, outcome in outcomes if outcome is SUCCEEDED or isinstance(outcome, Failed)]
        self._firsts.update([letter.queue for letter in tried if letter.attempts == 1 and letter.queue in self._rules])
        retried = [claim.letter.queue for claim, move in moves if move is not DELIVERED and is_retry(move)]
        self._owed.update([queue for queue in retried if queue in self._rules])

    async def pay(self, moves: list[Settlement]) -> None:
        """Draw on the budgets; where one is empty, its retries among *moves* wait longer. Each is paid for once."""
        retries, self._owed = self._owed, Counter()
        firsts = Counter({queue: self._firsts.pop(queue, 0) for queue in retries})
        try:
            for queue in list(retries):
                hold = await self._store.spend(queue, self._rules[queue], firsts=firsts[queue], retries=retries[queue])
                del retries[queue], firsts[queue]
                moves[:] = [_held(each, queue, hold) for each in moves]
        except BaseException:  # cancelled or refused: what is not paid is still owed
            self._owed.update(retries)
            self._firsts.update(firsts)
            raise

    def forget(self) -> None:
        """Owe nothing: paying may be what failed, and letters come first."""
        self._owed.clear()


def _held(settlement: Settlement, queue: str, hold: float) -> Settlement:
    claim, move = settlement
    return (claim, held_back(move, hold)) if claim.letter.queue == queue and is_retry(move) else settlement
