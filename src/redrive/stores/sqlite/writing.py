"""
Letters written to rows: a whole letter inserted, and the fields that a change touched.

Owns how a field of Letter becomes a column. Knows no rule: `core.changes` says what a letter becomes.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from redrive.core.letter import Letter, Status
from redrive.core.why import Why
from redrive.stores import columns
from redrive.stores.sql_files import filled
from redrive.stores.sqlite import rows
from redrive.stores.sqlite.sql import statements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from redrive.core.letter import Try
    from redrive.stores.sqlite.transaction import Transaction

_SQL = statements("writing")
_LISTS = {"tries": columns.read_tries, "failure_history": columns.read_history}  # fields kept as JSON


# ---------------------------------------------------------------------- a whole letter

_START = ("seq", "token", "held", "lane", "lease", "payload", "extras", "queue_wide")
_FIELDS = [  # fields of a letter that have a column of their own, and come as they are
    name
    for name in Letter.__struct_fields__
    if name not in ("payload", "token", "worker", "waits_for", "unique_in", *_LISTS)
    and name not in columns.Extras.__struct_fields__
]
_FRESH = [name for name in _FIELDS if name in rows.HOT.split(", ") or name in ("status", "why")]  # others are unset yet


def _insert_of(names: Sequence[str]) -> str:
    return filled(_SQL["insert"], {"columns": ", ".join(names), "marks": ", ".join("?" * len(names))})


_INSERT_FRESH = _insert_of((*_START, *_FRESH))
_INSERT = _insert_of((*_START, "dead", "archived_from", *_LISTS, *_FIELDS))
_fresh_columns, _own_columns = attrgetter(*_FRESH), attrgetter(*_FIELDS)


class NewRow(NamedTuple):
    """What the store adds to a letter in its row: its number, its token, and what it waits for."""

    seq: int
    token: int
    held: int
    lane: int


def insert(transaction: Transaction, letter: Letter, start: NewRow, archived_from: Status | None = None) -> bool:
    """Insert *letter*; False if a letter with its id or idempotency key is kept already."""
    payload = letter.payload if len(letter.payload) <= rows.LARGE else None
    wide = 1 if letter.unique_in == "queue" else None
    where = (*start, transaction.lease(0), payload, columns.extras_of(letter), wide)
    if letter.why == Why.ENQUEUED:  # it is new: a third quicker than with all its empty columns
        transaction.sql(_INSERT_FRESH, (*where, *_fresh_columns(letter)))
    else:
        dead = 1 if letter.status is Status.FAILED else None  # what the indexes of dead letters go by
        lists = [_list(letter, name) for name in _LISTS]
        transaction.sql(_INSERT, (*where, dead, archived_from, *lists, *_own_columns(letter)))
    if not transaction.connection.changes():
        return False
    if payload is None:
        transaction.sql(_SQL["keep_body"], (start.seq, letter.payload))
    return True


def _list(letter: Letter, name: str) -> bytes | None:
    kept = getattr(letter, name)
    return columns.encode(kept) if kept else None


# ---------------------------------------------------------------------- some fields of a letter


class Some:
    """Some columns of a row to read: *own* ones of the store, then fields of the letter."""

    def __init__(self, own: tuple[str, ...], fields: tuple[str, ...]) -> None:
        self.columns = ", ".join((*own, *fields))
        self._start, self._fields = len(own), fields
        self._lists = [(name, _LISTS[name]) for name in fields if name in _LISTS]
        self._has_status = "status" in fields

    def letter(self, row: tuple[Any, ...]) -> Letter:
        """Return a letter that has these fields alone; its other fields are their defaults."""
        found = dict(zip(self._fields, row[self._start :], strict=True))
        for name, read in self._lists:
            found[name] = read(found[name])
        if self._has_status:
            found["status"] = columns.status_of(found["status"])
        return Letter(payload=b"", **found)


class Update(NamedTuple):
    """A statement that writes some fields of a letter, and its token."""

    sql: str
    plain: Callable[[Letter], tuple[Any, ...]]
    lists: tuple[str, ...]

    def values(self, letter: Letter, token: int, seq: int) -> tuple[Any, ...]:
        """Return the bindings that make the row at *seq* what *letter* says."""
        return (*self.plain(letter), *[_list(letter, name) for name in self.lists], token, seq)


def update_of(fields: Iterable[str], also: str = "") -> Update:
    """
    Return the statement for *fields*; *also* sets columns that only the store knows.

    SQLite looks at every index over a column that is set, even to what it was: set what changes.
    """
    lists = tuple(name for name in fields if name in _LISTS)
    plain = tuple(name for name in fields if name not in _LISTS)
    sets = ", ".join(f"{name} = ?" for name in (*plain, *lists, "token"))
    return Update(filled(_SQL["update"], {"sets": sets + also}), attrgetter(*plain), lists)


class UpdateAlike(NamedTuple):
    """A statement that writes many letters at once whose *plain* fields become equal, and their token."""

    sql: str  # the last binding says which rows
    plain: Callable[[Letter], tuple[Any, ...]]


def update_alike(fields: Iterable[str]) -> UpdateAlike:
    """Return the statement for *fields*; its last binding is an array of seqs."""
    sets = ", ".join(f"{name} = ?" for name in (*fields, "token"))
    return UpdateAlike(filled(_SQL["update_alike"], {"sets": sets}), attrgetter(*fields))


def update_logged(fields: Iterable[str], also: str = "") -> UpdateAlike:
    """Return the statement for *fields* and each row's own attempt log; its last binding is of `logged_rows`."""
    sets = ", ".join(f"{name} = ?" for name in (*fields, "token"))
    return UpdateAlike(filled(_SQL["update_logged"], {"sets": sets + also}), attrgetter(*fields))


ITS_DUE = ", due_us = CAST(substr(its.value, 21, 20) AS INTEGER)"


def logged_rows(rows: Iterable[tuple[int, int, tuple[Try, ...]]]) -> Any:
    """Return seqs, due times and attempt logs as the last binding of `update_logged`."""
    return apsw.carray(tuple(b"%020d%020d%b" % (seq, due, columns.encode(tries)) for seq, due, tries in rows))
