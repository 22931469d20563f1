"""
Retention: letters and plans past their time, and handled keys and groups that have no letter any more.

Owns the cursors: a call looks at some letters, keys, groups and plans, and the next call goes on from there.
So no call takes long, however much the file holds. Knows no clock: the transaction says what time it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from redrive.core.letter import Status
from redrive.core.plan import is_over
from redrive.stores import columns
from redrive.stores.grouping import FORGOTTEN_AFTER
from redrive.stores.sqlite import claiming, ordering, rows
from redrive.stores.sqlite.desk import acting, planning
from redrive.stores.sqlite.sql import statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.stores.contract import Retention
    from redrive.stores.sqlite.file.living_workers import Living
    from redrive.stores.sqlite.transaction import Transaction

Key = tuple[str, str]  # handler, idempotency key

_LOOKUPS = 20_000  # each key is looked up in each queue and kind
_key = msgspec.json.Decoder(Key)
_name = msgspec.json.Decoder(str)
_PLANS = 200  # read and decoded in one call
_START: Key = ("", "")
_SQL = statements("retention")
LINES = _SQL["lines"]


def retain(transaction: Transaction, retention: Retention, limit: int, living: Living) -> int:
    """Look at the next *limit* letters and remove those past their time; forget handled keys likewise."""
    claiming.bury(transaction, living)
    (cursor,) = rows.the_row(transaction.connection, _SQL["cursor"])
    seen: list[Any] = transaction.sql(_SQL["page"], (cursor, limit)).fetchall()
    transaction.sql(_SQL["move_cursor"], (seen[-1][0] if len(seen) == limit else 0,))
    ends = {
        name: transaction.now_us - round(seconds * 1e6)
        for name, seconds in msgspec.structs.asdict(retention).items()
        if seconds is not None
    }
    over = [
        seq
        for seq, status, updated_us in seen
        if status in ends
        and updated_us <= ends[status]
        and (status == Status.DELIVERED or ordering.awaited_by(transaction, seq) is None)
    ]
    acting.purge(transaction, over)
    _forget_groups(transaction, limit)
    if "handled" in ends:
        _forget_handled(transaction, ends["handled"], limit)
    if "plans" in ends:
        _forget_plans(transaction, ends["plans"], min(limit, _PLANS))
    return len(over)


def _forget_handled(transaction: Transaction, end_us: int, limit: int) -> None:
    """Forget keys that were handled before *end_us* and have no letter any more."""
    kept = transaction.sql(_SQL["read_cursor_of"], ("handled",)).fetchone()
    lines: list[Any] = transaction.sql(LINES).fetchall()
    most = min(limit, max(10, _LOOKUPS // (len(lines) or 1)))
    start = _key.decode(kept[0]) if kept else _START
    page: list[Any] = transaction.sql(_SQL["handled_page"], (*start, most)).fetchall()
    over = [(name, key) for name, key, at in page if at <= end_us and not _has_letter(transaction, key, lines)]
    transaction.connection.executemany(_SQL["forget_handled"], over)
    if page or kept:
        _move_cursor(transaction, "handled", page[-1][:2] if len(page) == most else _START)


def _forget_groups(transaction: Transaction, limit: int) -> None:
    """Forget groups without letters that were not seen lately, of the next *limit*."""
    kept = transaction.sql(_SQL["read_cursor_of"], ("groups",)).fetchone()
    page: list[Any] = transaction.sql(_SQL["groups_page"], (_name.decode(kept[0]) if kept else "", limit)).fetchall()
    end_us = transaction.now_us - round(FORGOTTEN_AFTER * 1e6)
    over = [(name,) for name, seen_us in page if seen_us <= end_us]
    transaction.connection.executemany(_SQL["forget_group"], over)
    if page or kept:
        _move_cursor(transaction, "groups", page[-1][0] if len(page) == limit else "")


def _forget_plans(transaction: Transaction, end_us: int, limit: int) -> None:
    """Forget plans that ended at *end_us* or earlier, of the next *limit*."""
    kept = transaction.sql(_SQL["read_cursor_of"], ("plans",)).fetchone()
    page: list[Any] = transaction.sql(_SQL["plans_page"], (_name.decode(kept[0]) if kept else "", limit)).fetchall()
    over = [(plan_id,) for plan_id, value in page if is_over(planning.plan_decoder.decode(value), end_us)]
    transaction.connection.executemany(_SQL["forget_plan"], over)
    if page or kept:
        _move_cursor(transaction, "plans", page[-1][0] if len(page) == limit else "")


def _has_letter(transaction: Transaction, key: str, lines: Sequence[tuple[str, str]]) -> bool:
    """Whether a letter with this key (or, without one, this id) is kept, in any queue and of any kind."""
    return transaction.sql(_SQL["has_id"], (key,)).fetchone() is not None or any(
        transaction.sql(_SQL["has_key"], (queue, kind, key)).fetchone() for queue, kind in lines
    )


def _move_cursor(transaction: Transaction, of: str, cursor: Key | str) -> None:
    transaction.sql(_SQL["write_cursor_of"], (of, columns.encode(cursor)))
