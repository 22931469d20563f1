"""
Walking the letters that a query lets through, in order.

Owns the choice of the way: an index, the search index, or the table. Reads lazily: no more
rows than are taken. The caller still judges the rest of the query.
"""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.stores.sqlite import rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import apsw

    from redrive.stores.sqlite.desk.compiling import Compiled

Row = tuple[Any, ...]

_FEW = 10_000
_WAITING = """
seq IN (SELECT seq FROM letters INDEXED BY letters_due WHERE status = 'pending' AND held = 0
        UNION ALL
        SELECT seq FROM letters INDEXED BY letters_held WHERE status = 'pending' AND held > 0)
"""


class Walk(NamedTuple):
    """Which *columns* (seq first), from after which seq on, and in which direction."""

    columns: str
    after: int | None
    newest_first: bool


def scan(connection: apsw.Connection, compiled: Compiled, walk: Walk) -> Iterator[Row]:
    """Yield the rows that *compiled* lets through."""
    where, bindings = _where(connection, compiled)
    if compiled.search is None:
        return iter(_walk(connection, "letters", where, bindings, walk))
    # The search index covers the beginning of a text; the few that go on are looked at one by one.
    searched = "error_text CROSS JOIN letters ON letters.seq = error_text.rowid"
    found = _walk(connection, searched, f"error_text MATCH ? AND {where}", (compiled.search, *bindings), walk)
    long = _walk(connection, "letters", f"length(last_error) > 500 AND {where}", bindings, walk)
    return _once(merge(found, long, key=lambda row: row[0], reverse=walk.newest_first))


def _where(connection: apsw.Connection, compiled: Compiled) -> tuple[str, tuple[Any, ...]]:
    if "status = 'pending'" in compiled.where and _pending(connection) < _FEW:
        # Few among many: asking the indexes of waiting letters beats walking the table.
        return f"{_WAITING} AND {compiled.where}", compiled.bindings
    return compiled.where, compiled.bindings


def _pending(connection: apsw.Connection) -> int:
    sql = "SELECT coalesce(sum(n), 0) FROM tallies WHERE status = 'pending'"
    return int(rows.the_row(connection, sql)[0])


def _walk(connection: apsw.Connection, source: str, where: str, bindings: tuple[Any, ...], walk: Walk) -> Iterable[Row]:
    number = "error_text.rowid" if source.startswith("error_text") else "seq"
    if walk.after is not None:
        where = f"({where}) AND {number} {'<' if walk.newest_first else '>'} ?"
        bindings = (*bindings, walk.after)
    order = f"{number} {'DESC' if walk.newest_first else 'ASC'}"
    sql = f"SELECT {walk.columns} FROM {source} WHERE {where} ORDER BY {order}"  # noqa: S608 - parameters only
    return connection.execute(sql, bindings)


def _once(found: Iterable[Row]) -> Iterator[Row]:
    before = None
    for row in found:
        if row[0] != before:
            yield row
        before = row[0]
