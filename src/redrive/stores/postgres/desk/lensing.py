"""
Grouping failed letters under a lens, in SQL.

Owns the lenses as expressions of this dialect. The server groups and adds up, in one statement; only what a query
leaves to be judged row by row is added up here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.core.query import Query
from redrive.stores.lensing import SQL, LensHeap, LensSums, titled
from redrive.stores.postgres.desk.compiling import compile_query, needs_now
from redrive.stores.postgres.desk.finding import FAILED, LARGEST_PAGE, matching
from redrive.stores.postgres.texts import name

if TYPE_CHECKING:
    from redrive.core.query import Lens
    from redrive.stores.contract import LensGroup
    from redrive.stores.postgres.desk.compiling import Compiled
    from redrive.stores.postgres.server.transaction import Transaction

# Of a long origin the column has the beginning alone, which may end before the slash.
_LETTERS = """{schema}.outbox LEFT JOIN {schema}.outbox_names
                    ON strpos(source, E'\\x1aL') > 0 AND digest = right(source, 65)"""
_ORIGIN = "coalesce(name, source)"
# As `place_of_origin`. The first character is never searched.
_SLASH = f"strpos(substr(replace({_ORIGIN}, '://', ':::'), 2), '/')"
_PLACE = (
    f"CASE WHEN starts_with({_ORIGIN}, 'event:') THEN 'event' "
    f'WHEN {_SLASH} > 0 THEN left({_ORIGIN}, {_SLASH}) ELSE {_ORIGIN} END COLLATE "C"'
)
_COLUMNS: dict[Lens, str] = {
    "kind": "event_type", "category": "category", "error_type": "error_type", "release": "release",
    "tenant": "workspace_id",
}  # fmt: skip


async def groups_by(transaction: Transaction, lens: Lens, query: Query, limit: int) -> list[LensGroup]:
    """Group the failed letters that match by what they have under *lens*, biggest first."""
    dead = Query((*FAILED.terms, *query.terms))
    now_us = await transaction.now_us() if needs_now(query) else 0
    compiled = compile_query(dead, transaction.sql["schema"], now_us)
    if compiled.rest.is_empty:
        heaps = await _grouped(transaction, lens, compiled, limit)
    else:
        sums = LensSums(lens)
        async for _, letter in matching(transaction, dead, None, LARGEST_PAGE):
            sums.add(letter)
        heaps = sums.biggest(limit)
    return titled(heaps, await _titles(transaction, heaps))


async def _grouped(transaction: Transaction, lens: Lens, compiled: Compiled, limit: int) -> list[LensHeap]:
    sql = lens_sql(lens, transaction.sql["schema"], compiled.where, len(compiled.bindings) + 1)
    return [_heap(transaction, row) for row in await transaction.fetch(sql, *compiled.bindings, limit)]


def _heap(transaction: Transaction, row: Any) -> LensHeap:
    heap = LensHeap(*row)
    value = None if heap.value is None else transaction.text(heap.value)
    return heap._replace(value=value, top=transaction.text(heap.top))


async def _titles(transaction: Transaction, heaps: list[LensHeap]) -> dict[str, str]:
    asked = {name(heap.top): heap.top for heap in heaps}
    found = await transaction.rows("groups", list(asked))
    return {asked[row["fingerprint"]]: transaction.text(row["title"]) for row in found}


def lens_sql(lens: Lens, schema: str, where: str, limit: int) -> str:
    """Return the statement for the quoted *schema*: the parameters of *where*, then the limit, number *limit*."""
    letters = _LETTERS if lens == "origin" else "{schema}.outbox"
    return SQL.format(
        value=_COLUMNS.get(lens, _PLACE), letters=letters.format(schema=schema), where=where, limit=f"${limit}",
        first=f"{schema}.outbox_us(min(first))", last=f"{schema}.outbox_us(max(last))",
        first_failed="coalesce(first_failed_at, failed_at, updated_at)", last_failed="coalesce(failed_at, updated_at)",
    )  # fmt: skip
