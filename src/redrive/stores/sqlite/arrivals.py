"""
Plain letters, inserted together.

Owns the quick way in: letters with nothing to check or to wait for are gathered over all
operations of a transaction and inserted by one statement. A letter that breaks a constraint
after all (its id is kept already) rolls the transaction back, and the writer runs its
operations again the careful way, which is `putting`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from redrive.core.why import Why
from redrive.stores.columns import extras_of
from redrive.stores.contract import Receipt
from redrive.stores.sql_files import filled
from redrive.stores.sqlite.rows import LARGE
from redrive.stores.sqlite.sql import statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

    from redrive.core.letter import Draft
    from redrive.stores.sqlite.transaction import QueueRow

_INSERT = statements("writing")["insert_plain"]
_GIVEN = 15  # values that differ from letter to letter: seq to extras
_SHARED = (  # the instant, three times, the token and the lease
    f"?1, ?1, ?1, ?2, ?3, 0, 0, 0, 1, 'pending', 0, 0, '{Why.ENQUEUED}'"
)
_SIZES = (64, 8, 1)


def _statement(count: int) -> str:
    """Return one statement for *count* letters: a third quicker than one each, and no Python in between."""
    firsts = range(4, 4 + count * _GIVEN, _GIVEN)
    rows = (", ".join(f"?{number}" for number in range(first, first + _GIVEN)) for first in firsts)
    return filled(_INSERT, {"rows": ", ".join(f"({given}, {_SHARED})" for given in rows)})


_INSERTS = [(size, _statement(size)) for size in _SIZES]


def is_plain(draft: Draft, queue: QueueRow | None) -> bool:
    """Whether nothing about *draft* needs a look at other letters."""
    if draft.after or draft.idempotency_key is not None or draft.failure is not None or len(draft.payload) > LARGE:
        return False
    return queue is None or (queue.max_size is None and (draft.key is None or not queue.ordered))


class Arrivals:
    """What was put in one transaction and not yet inserted."""

    def __init__(self) -> None:
        self._values: list[object] = []  # of all letters, one after the other
        self._kinds: list[tuple[str, str]] = []

    def add(self, drafts: Sequence[Draft], first_seq: int, now_us: int) -> list[Receipt]:
        """Take *drafts*; they are in the table once `insert` was called."""
        values, kinds, seq = self._values, self._kinds, first_seq
        for draft in drafts:
            due = draft.due_us
            if due is None:
                due = now_us + round(draft.delay * 1e6) if draft.delay else now_us
            values += (
                seq, draft.id, draft.queue, draft.kind, draft.payload, draft.content_type, draft.key,
                draft.priority, due, draft.policy, draft.generation, draft.origin, draft.handler,
                draft.tenant, extras_of(draft),
            )  # fmt: skip
            kinds.append((draft.queue, draft.kind))
            seq += 1
        return [Receipt(draft.id) for draft in drafts]

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def insert(self, connection: apsw.Connection, token: int, now_us: int, lease: int) -> Counter[tuple[str, str]]:
        """Insert them by as few statements as can be; return how many there were by queue and kind."""
        values, self._values = self._values, []
        kinds, self._kinds = self._kinds, []
        left, start = len(kinds), 0
        for size, statement in _INSERTS:
            while left >= size:
                end = start + size * _GIVEN
                connection.execute(statement, (now_us, token, lease, *values[start:end]))
                left, start = left - size, end
        return Counter(kinds)
