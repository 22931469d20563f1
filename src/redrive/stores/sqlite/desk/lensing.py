"""
Grouping failed letters under a lens, in SQL.

Owns the lenses as expressions of this dialect. The database groups and adds up; only what a query leaves to be judged
row by row is added up here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.core.query import Query
from redrive.stores.lensing import SQL, LensHeap, LensSums, titled
from redrive.stores.sqlite.desk.compiling import compile_query
from redrive.stores.sqlite.desk.finding import FAILED, matching, title_of

if TYPE_CHECKING:
    import apsw

    from redrive.core.query import Lens
    from redrive.stores.contract import LensGroup
    from redrive.stores.sqlite.desk.compiling import Compiled

# As `place_of_origin`, on bytes: functions on text stop at a NUL. The first byte is never searched.
_SLASH = "instr(substr(CAST(replace(origin, '://', ':::') AS BLOB), 2), x'2f')"
_PLACE = (
    "CASE WHEN substr(origin, 1, 6) = 'event:' THEN 'event' "
    f"WHEN {_SLASH} > 0 THEN CAST(substr(CAST(origin AS BLOB), 1, {_SLASH}) AS TEXT) ELSE origin END"
)
_VALUES: dict[Lens, str] = {
    "origin": _PLACE, "kind": "kind", "category": "category", "error_type": "error_type", "release": "release",
    "tenant": "tenant",
}  # fmt: skip


def groups_by(connection: apsw.Connection, lens: Lens, query: Query, limit: int, now_us: int) -> list[LensGroup]:
    """Group the failed letters that match by what they have under *lens*, biggest first."""
    dead = Query((*FAILED.terms, *query.terms))
    compiled = compile_query(dead, now_us, connection)
    if compiled.rest.is_empty:
        heaps = _grouped(connection, lens, compiled, limit)
    else:
        sums = LensSums(lens)
        for _, letter in matching(connection, dead, None, now_us):
            sums.add(letter)
        heaps = sums.biggest(limit)
    return titled(heaps, {heap.top: title_of(connection, heap.top) for heap in heaps})


def _grouped(connection: apsw.Connection, lens: Lens, compiled: Compiled, limit: int) -> list[LensHeap]:
    sql = lens_sql(lens, compiled.where)
    return [LensHeap(*row) for row in connection.execute(sql, (*compiled.bindings, limit))]


def lens_sql(lens: Lens, where: str) -> str:
    """Return the statement: the parameters of *where*, then the limit."""
    return SQL.format(
        value=_VALUES[lens], letters="letters", where=where, limit="?", first="min(first)", last="max(last)",
        first_failed="coalesce(first_failed_us, failed_us, updated_us)", last_failed="coalesce(failed_us, updated_us)",
    )  # fmt: skip
