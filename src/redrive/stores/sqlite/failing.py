"""
What SQLite keeps of a failure in addition to the letter: its group, and the text that searches look in.

Owns both tables. Knows no rule: `core.changes` says what a failure does to a letter.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import apsw

from redrive.failpoints import hit
from redrive.stores.sqlite.sql import statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.letter import Failure
    from redrive.stores.sqlite.transaction import Transaction

_SQL = statements("failing")
SEARCHED = 500  # characters of an error's text that the index covers, and of a title without a template


def remember(transaction: Transaction, seqs: Sequence[int], failure: Failure, *, again: bool) -> None:
    """Note the group of letters that died, and make their error searchable; *again*: they were dead before."""
    hit("fail.inside")
    if failure.fingerprint not in transaction.seen_groups:  # its instant is the same for all of a transaction
        transaction.seen_groups.add(failure.fingerprint)
        _note_group(transaction, failure)
    make_searchable(transaction, seqs, failure.message, again=again)


def _note_group(transaction: Transaction, failure: Failure) -> None:
    transaction.sql(
        _SQL["note_group"],
        (failure.fingerprint, failure.error_type, failure.template or failure.message[:SEARCHED], transaction.now_us),
    )


def make_searchable(transaction: Transaction, seqs: Sequence[int], error: str, *, again: bool) -> None:
    """Let searches find the letters at *seqs* by the text of their error; *again*: earlier texts are searchable yet."""
    rows = apsw.carray(array("q", seqs))
    if again:
        transaction.sql(_SQL["forget_text"], (rows,))
    folded = error[:SEARCHED].lower()  # as a query folds it: the index knows simpler rules
    transaction.sql(_SQL["keep_text"], (folded, rows))
