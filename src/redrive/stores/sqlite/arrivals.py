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

from redrive.stores.contract import Receipt
from redrive.stores.sqlite.rows import LARGE, extras_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

    from redrive.core.letter import Draft
    from redrive.stores.sqlite.turn import QueueRow

_INSERT = """
INSERT INTO letters (seq, id, queue, kind, payload, content_type, key, priority, due_us, policy, generation, origin,
                     handler, tenant, extras, token, cycle_us, created_us, updated_us, attempts, losses, cycles,
                     payload_version, status, held, lane, why)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?16, ?17, ?17, ?17, 0, 0, 0, 1, 'pending', 0, 0, 'enqueued')
"""


def is_plain(draft: Draft, queue: QueueRow | None) -> bool:
    """Whether nothing about *draft* needs a look at other letters."""
    if draft.after or draft.idempotency_key is not None or draft.failure is not None or len(draft.payload) > LARGE:
        return False
    return queue is None or (queue.max_size is None and (draft.key is None or not queue.ordered))


class Arrivals:
    """What was put in one transaction and not yet inserted."""

    def __init__(self) -> None:
        self._rows: list[tuple[object, ...]] = []
        self._kinds: list[tuple[str, str]] = []

    def add(self, drafts: Sequence[Draft], seqs: Sequence[int], token: int, now_us: int) -> list[Receipt]:
        """Take *drafts*; they are in the table once `insert` was called."""
        for draft, seq in zip(drafts, seqs, strict=True):
            due = now_us + round(draft.delay * 1e6) if draft.due_us is None else draft.due_us
            self._rows.append(
                (
                    seq, draft.id, draft.queue, draft.kind, draft.payload, draft.content_type, draft.key,
                    int(draft.priority), due, draft.policy, draft.generation, draft.origin, draft.handler,
                    draft.tenant, extras_of(draft), token, now_us,
                )
            )  # fmt: skip
            self._kinds.append((draft.queue, draft.kind))
        return [Receipt(draft.id) for draft in drafts]

    def insert(self, connection: apsw.Connection) -> Counter[tuple[str, str]]:
        """Insert them and return how many there were by queue and kind."""
        rows, self._rows = self._rows, []
        kinds, self._kinds = self._kinds, []
        if rows:
            connection.executemany(_INSERT, rows)
        return Counter(kinds)
