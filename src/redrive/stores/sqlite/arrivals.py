"""
Plain letters, inserted together.

Owns the quick way in: letters that wait for nothing are gathered over all operations of a
transaction and inserted by one statement. A letter whose id or idempotency key is kept already
is not inserted, and its receipt then names the one that is kept. The way row by row is `putting`.
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


_INSERT = statements("writing")["insert_plain"]
_PUTTING = statements("putting")
_KEPT_ID, _INSERTED = _PUTTING["kept_id"], _PUTTING["inserted"]
_GIVEN = 17  # values that differ from letter to letter: seq to queue_wide
_SHARED = (  # the instant, three times, the token and the lease
    f"?1, ?1, ?1, ?2, ?3, 0, 0, 0, 1, 'pending', 0, 0, '{Why.ENQUEUED}'"
)
_SIZES = (64, 48, 32, 24, *range(16, 0, -1))  # so that few letters need one statement, and many rarely a third


def _statement(count: int) -> str:
    """Return one statement for *count* letters: a third quicker than one each, and no Python in between."""
    firsts = range(4, 4 + count * _GIVEN, _GIVEN)
    rows = (", ".join(f"?{number}" for number in range(first, first + _GIVEN)) for first in firsts)
    return filled(_INSERT, {"rows": ", ".join(f"({given}, {_SHARED})" for given in rows)})


_INSERTS = [(size, _statement(size)) for size in _SIZES]


def is_plain(draft: Draft) -> bool:
    """Whether *draft* waits for nothing, needs one row and was never in a spool; `putting` looks at its queue."""
    plain = not draft.after and draft.failure is None and draft.accepted_us is None
    return plain and len(draft.payload) <= LARGE


class Arrivals:
    """What was put in one transaction and not yet inserted."""

    def __init__(self) -> None:
        self._values: list[object] = []  # of all letters, one after the other
        self._drafts: list[Draft] = []
        self._answers: list[list[Receipt]] = []  # in the same order; a duplicate's is replaced

    def add(self, drafts: Sequence[Draft], first_seq: int, now_us: int) -> list[Receipt]:
        """Take *drafts*; they are in the table once `insert` was called."""
        values, seq = self._values, first_seq
        for draft in drafts:
            due = draft.due_us
            if due is None:
                due = now_us + round(draft.delay * 1e6) if draft.delay else now_us
            values += (
                seq, draft.id, draft.queue, draft.kind, draft.payload, draft.content_type, draft.key,
                draft.idempotency_key, draft.priority, due, draft.policy, draft.generation, draft.origin,
                draft.handler, draft.tenant, extras_of(draft), 1 if draft.unique_in == "queue" else None,
            )  # fmt: skip
            seq += 1
        receipts = [Receipt(draft.id) for draft in drafts]
        self._drafts += drafts
        self._answers.append(receipts)
        return receipts

    def __bool__(self) -> bool:
        return bool(self._drafts)

    def insert(self, connection: apsw.Connection, token: int, now_us: int, lease: int) -> Counter[tuple[str, str]]:
        """Insert them by as few statements as can be; return how many there were by queue and kind."""
        drafts, values, answers = self._drafts, self._values, self._answers
        self._drafts, self._values, self._answers = [], [], []
        left, start, duplicates = len(drafts), 0, list[int]()
        for size, statement in _INSERTS:
            while left >= size:
                given = values[start * _GIVEN : (start + size) * _GIVEN]
                connection.execute(statement, (now_us, token, lease, *given))
                if connection.changes() != size:
                    duplicates += _left_out(connection, given, start)
                left, start = left - size, start + size
        counted = Counter([(draft.queue, draft.kind) for draft in drafts])
        for position in duplicates:
            counted[drafts[position].queue, drafts[position].kind] -= 1
        _answer(connection, drafts, answers, set(duplicates))
        return counted


def _left_out(connection: apsw.Connection, given: Sequence[object], start: int) -> list[int]:
    """Return the positions of letters that were not inserted, because their id or their key is kept."""
    seqs = given[::_GIVEN]
    found = {row[0] for row in connection.execute(_INSERTED, (seqs[0], seqs[-1]))}
    return [start + position for position, seq in enumerate(seqs) if seq not in found]


def _answer(
    connection: apsw.Connection, drafts: Sequence[Draft], answers: Sequence[list[Receipt]], duplicates: set[int]
) -> None:
    """Let the receipt of each duplicate name the letter that is kept."""
    places = ((receipts, place) for receipts in answers for place in range(len(receipts))) if duplicates else ()
    for number, (receipts, place) in enumerate(places):
        if number in duplicates:
            draft = drafts[number]
            names = (draft.id, draft.queue, draft.kind, draft.idempotency_key, draft.unique_in)
            row = connection.execute(_KEPT_ID, names).fetchone()
            receipts[place] = Receipt(draft.id if row is None else row[0], duplicate=True)
