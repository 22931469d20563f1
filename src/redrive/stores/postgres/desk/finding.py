"""
Reading letters: one, a page, a count, groups, tallies.

Owns the operator's reads. Numbers that must belong together come from one statement or one
snapshot; the pages of a long search are statements of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from redrive.core.letter import Letter
from redrive.core.query import Query, Term
from redrive.core.waiting import NAMED, Standing
from redrive.errors import LetterNotFound
from redrive.stores.contract import LONG_HISTORY, Group, Histories, Page, Tally, place_of
from redrive.stores.grouping import biggest, by_tally, is_tallied
from redrive.stores.postgres import rows
from redrive.stores.postgres.desk.compiling import compile_query, few, needs_now
from redrive.stores.postgres.putting import canonical
from redrive.stores.postgres.texts import name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redrive.stores.grouping import Counted, Heap
    from redrive.stores.postgres.desk.compiling import Compiled
    from redrive.stores.postgres.server.transaction import Transaction

FAILED = Query((Term("status", "eq", ("failed",)),), "status:failed")
_FEW = 10_000
_PAGE, LARGEST_PAGE = 200, 2_000  # rows read at once while the rest of a query is judged here


async def get(transaction: Transaction, letter_id: str) -> Letter | None:
    """Return the letter, or None."""
    try:
        row = await transaction.row("get", canonical(letter_id))
    except LetterNotFound:  # not an id at all
        return None
    return None if row is None else rows.letter_of(row, transaction.whole)


async def standing(transaction: Transaction, letter_id: str) -> Standing | None:
    """Return what a pending letter waits for."""
    try:
        row = await transaction.row("standing", canonical(letter_id), transaction.now.wall, NAMED)
    except LetterNotFound:  # not an id at all
        return None
    if row is None:
        return None
    pairs = (str(pair).partition(" ") for pair in row["after"])
    return Standing(
        due_in=row["due_in"] / 1e6,
        after=tuple((other, status) for other, _, status in pairs),
        after_count=row["after_count"],
        earlier=row["earlier"],
    )


async def dependents(transaction: Transaction, letter_ids: list[str]) -> list[tuple[str, str]]:
    """Return who waits for whom."""
    found = await transaction.rows("dependents", [canonical(each) for each in letter_ids])
    return [(row["awaited"], row["waiting"]) for row in found]


async def letters(transaction: Transaction, seqs: list[int]) -> dict[int, Letter]:
    """Return these letters by seq."""
    return {row[0]: rows.letter_of(row, transaction.whole) for row in await transaction.rows("letters", seqs)}


async def these(transaction: Transaction, letter_ids: list[str]) -> list[Letter]:
    """Return these letters in this order; of one that is gone its id alone."""
    seqs = [row["seq"] for row in await transaction.rows("look", letter_ids)]
    found = {letter.id: letter for letter in (await letters(transaction, seqs)).values()}
    return [found.get(letter_id) or Letter(letter_id, "", "", b"") for letter_id in letter_ids]


async def find(transaction: Transaction, query: Query, cursor: str | None, limit: int, payloads: bool) -> Page:  # noqa: FBT001 - see store
    """Return a page, newest first."""
    found: list[tuple[int, Letter]] = []
    async for pair in matching(transaction, query, cursor, limit + 1, payloads=payloads):
        found.append(pair)
        if len(found) > limit:
            break
    page = found[:limit]
    return Page([letter for _, letter in page], str(page[-1][0]) if len(found) > limit and page else None)


async def matching(
    transaction: Transaction, query: Query, cursor: str | None, at_most: int, *, payloads: bool = False
) -> AsyncIterator[tuple[int, Letter]]:
    """Yield the letters that match, newest first, with their seqs; *at_most* is how many the caller wants at once."""
    now_us = await transaction.now_us() if needs_now(query) else 0
    compiled = compile_query(query, transaction.sql["schema"], now_us)
    where = await _where(transaction, compiled)
    before = place_of(cursor)
    size = at_most if compiled.rest.is_empty else _PAGE
    columns = transaction.sql["letter" if payloads or compiled.rest.reads_payload else "lean"]
    while True:
        found = await _page(transaction, columns, where, compiled, before, size)
        for row in found:
            letter = rows.letter_of(row, transaction.whole)
            if compiled.rest.matches(letter, now_us):
                yield row[0], letter if payloads or not letter.payload else replace(letter, payload=b"")
        if len(found) < size:
            return
        before, size = found[-1][0], min(size * 2, max(size, LARGEST_PAGE))


async def _page(
    transaction: Transaction, columns: str, where: str, compiled: Compiled, before: int | None, size: int
) -> list[Any]:
    n = len(compiled.bindings)
    sql = (
        f"SELECT {columns} FROM {transaction.sql['schema']}.outbox "  # noqa: S608 - parameters only
        f"WHERE {where} AND (${n + 1}::bigint IS NULL OR seq < ${n + 1}) ORDER BY seq DESC LIMIT ${n + 2}"
    )
    if before is not None:
        sql = sql.replace(f"(${n + 1}::bigint IS NULL OR seq < ${n + 1})", f"seq < ${n + 1}::bigint")
    return await transaction.fetch(sql, *compiled.bindings, before, size)


async def _where(transaction: Transaction, compiled: Compiled) -> str:
    if compiled.live is not None and await _live(transaction, compiled.live) < _FEW:
        return f"{few(compiled.live, transaction.sql['schema'])} AND {compiled.where}"
    return compiled.where


async def _live(transaction: Transaction, status: str) -> int:
    return sum(tally.count for tally in await tallies(transaction) if tally.status == status)


async def count(transaction: Transaction, query: Query, at_most: int) -> int:
    """Count matching letters, but not beyond *at_most*."""
    now_us = await transaction.now_us() if needs_now(query) else 0
    compiled = compile_query(query, transaction.sql["schema"], now_us)
    if not compiled.rest.is_empty:
        n = 0
        async for _ in matching(transaction, query, None, at_most):
            n += 1
            if n == at_most:
                break
        return n
    where = await _where(transaction, compiled)
    table = f"{transaction.sql['schema']}.outbox"
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {where} LIMIT ${len(compiled.bindings) + 1}) AS f"  # noqa: S608
    return int(await transaction.connection.fetchval(sql, *compiled.bindings, at_most))


async def tallies(transaction: Transaction, status: str | None = None) -> list[Tally]:
    """Return the maintained counts, all or those of one status."""
    found = await (transaction.rows("tallies") if status is None else transaction.rows("tallies_of", status))
    return [_tally(transaction, row) for row in found]


def _tally(transaction: Transaction, row: Any) -> Tally:
    queue, kind, status, category, policy, error_type, fingerprint, n = row
    text = transaction.text
    return Tally(
        queue=text(queue), kind=text(kind), status=status, category=category, policy=text(policy),
        error_type=text(error_type), fingerprint=text(fingerprint), count=n,
    )  # fmt: skip


async def groups(transaction: Transaction, query: Query, limit: int) -> list[Group]:
    """Group the failed letters that match, biggest group first."""
    counted = by_tally(await tallies(transaction), query) if is_tallied(query) else await _by_scan(transaction, query)
    return await _named(transaction, biggest(counted, limit))


async def _by_scan(transaction: Transaction, query: Query) -> list[Counted]:
    dead = Query((*FAILED.terms, *query.terms))
    found = matching(transaction, dead, None, LARGEST_PAGE)
    return [(letter.fingerprint or "", letter.kind, letter.category or "", 1) async for _, letter in found]


async def _named(transaction: Transaction, heaps: list[Heap]) -> list[Group]:
    asked = [name(heap.fingerprint) for heap in heaps]
    found = {row[0]: row[1:] for row in await transaction.rows("groups", asked)}
    return [
        _group(transaction, heap, found.get(fingerprint, ("", "", 0, 0)))
        for heap, fingerprint in zip(heaps, asked, strict=True)
    ]


def _group(transaction: Transaction, heap: Heap, known: Any) -> Group:
    error_type, title, first, last = known
    return Group(
        **msgspec.structs.asdict(heap),
        error_type=transaction.text(error_type),
        title=transaction.text(title),
        first_seen_us=first,
        last_seen_us=last,
    )


async def searchable(transaction: Transaction) -> bool:
    """Whether an index answers searches in the texts of errors."""
    return bool(await transaction.value("searchable"))


async def oldest_failed(transaction: Transaction) -> Letter | None:
    """Return the dead letter that has waited longest."""
    row = await transaction.row("oldest_failed")
    return None if row is None else rows.letter_of(row, transaction.whole)


async def histories(transaction: Transaction) -> Histories:
    """Return how often letters were replayed."""
    row = await transaction.row("histories", LONG_HISTORY)
    return Histories(row["largest"], row["long"])
