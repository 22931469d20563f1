"""
Reading letters: one, a page, a count, groups, tallies.

Owns the operator's reads. Each runs in one read transaction, so its numbers belong together.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from redrive.core.query import Query, Term
from redrive.core.waiting import NAMED, Standing
from redrive.stores.contract import LONG_HISTORY, Group, Histories, Page, Tally, place_of
from redrive.stores.grouping import biggest, by_tally, is_tallied
from redrive.stores.sqlite import ordering, rows
from redrive.stores.sqlite.desk.compiling import compile_query
from redrive.stores.sqlite.desk.scanning import Walk, scan
from redrive.stores.sqlite.sql import statements

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

    from redrive.core.letter import Letter
    from redrive.stores.grouping import Counted, Heap


FAILED = Query((Term("status", "eq", ("failed",)),), "status:failed")
_SQL = statements("finding", all=rows.ALL)


def get(connection: apsw.Connection, letter_id: str) -> Letter | None:
    """Return the letter, or None."""
    row = connection.execute(_SQL["get"], (letter_id,)).fetchone()
    return None if row is None else rows.letter_of(connection, row)


def standing(connection: apsw.Connection, letter_id: str, now_us: int) -> Standing | None:
    """Return what a pending letter waits for."""
    row = connection.execute(_SQL["standing"], (letter_id,)).fetchone()
    if row is None:
        return None
    seq, due_us, queue, key, lane = row
    return Standing(
        due_in=(due_us - now_us) / 1e6,
        after=tuple((id_ or "", status or "") for id_, status in connection.execute(_SQL["waited_for"], (seq, NAMED))),
        after_count=int(rows.the_row(connection, _SQL["waits"], (seq,))[0]),
        earlier=ordering.first(connection, queue, key) if lane == ordering.BEHIND else None,
    )


def find(
    connection: apsw.Connection,
    query: Query,
    cursor: str | None,
    limit: int,
    now_us: int,
    payloads: bool,  # noqa: FBT001 - see the store
) -> Page:
    """Return a page, newest first."""
    found = list(islice(matching(connection, query, cursor, now_us, payloads=payloads), limit + 1))
    page = found[:limit]
    return Page([letter for _, letter in page], str(page[-1][0]) if len(found) > limit and page else None)


def matching(
    connection: apsw.Connection, query: Query, cursor: str | None, now_us: int, *, payloads: bool = False
) -> Iterator[tuple[int, Letter]]:
    """Yield the letters that match, newest first, with their seqs."""
    compiled = compile_query(query, now_us, connection)
    read = rows.ALL if payloads or compiled.rest.reads_payload else rows.LISTED
    walk = Walk(read, place_of(cursor), newest_first=True)
    for row in scan(connection, compiled, walk):
        letter = rows.letter_of(connection, row)
        if compiled.rest.matches(letter, now_us):
            yield row[0], letter if payloads or not letter.payload else replace(letter, payload=b"")


def count(connection: apsw.Connection, query: Query, at_most: int, now_us: int) -> int:
    """Count matching letters, but not beyond *at_most*."""
    compiled = compile_query(query, now_us, connection)
    if compiled.rest.is_empty:
        return sum(1 for _ in islice(scan(connection, compiled, Walk("seq", None, newest_first=True)), at_most))
    return sum(1 for _ in islice(matching(connection, query, None, now_us), at_most))


def tallies(connection: apsw.Connection, status: str | None = None) -> list[Tally]:
    """Return the maintained counts, all or those of one status."""
    if status is None:
        return [_tally(row) for row in connection.execute(_SQL["tallies"])]
    return [_tally(row) for row in connection.execute(_SQL["tallies_of"], (status,))]


def _tally(row: tuple[Any, ...]) -> Tally:
    queue, kind, status, category, policy, error_type, fingerprint, n = row
    return Tally(
        queue=queue, kind=kind, status=status, category=category, policy=policy, error_type=error_type,
        fingerprint=fingerprint, count=n,
    )  # fmt: skip


def groups(connection: apsw.Connection, query: Query, limit: int, now_us: int) -> list[Group]:
    """Group the failed letters that match, biggest group first."""
    counted = by_tally(tallies(connection), query) if is_tallied(query) else _by_scan(connection, query, now_us)
    return [_group(connection, heap) for heap in biggest(counted, limit)]


def _by_scan(connection: apsw.Connection, query: Query, now_us: int) -> Iterator[Counted]:
    dead = Query((*FAILED.terms, *query.terms))
    for _, letter in matching(connection, dead, None, now_us):
        yield letter.fingerprint or "", letter.kind, letter.category or "", 1


def _group(connection: apsw.Connection, heap: Heap) -> Group:
    row = connection.execute(_SQL["group"], (heap.fingerprint,)).fetchone()
    error_type, title, first, last = row or ("", "", 0, 0)
    return Group(
        **msgspec.structs.asdict(heap), error_type=error_type, title=title, first_seen_us=first, last_seen_us=last
    )


def title_of(connection: apsw.Connection, fingerprint: str) -> str:
    """Return the message template of a group, or nothing."""
    row = connection.execute(_SQL["group"], (fingerprint,)).fetchone()
    return str(row[1]) if row else ""


def oldest_failed(connection: apsw.Connection) -> Letter | None:
    """Return the dead letter that has waited longest."""
    row = connection.execute(_SQL["oldest_failed"]).fetchone()
    return None if row is None else rows.letter_of(connection, row)


def histories(connection: apsw.Connection) -> Histories:
    """Return how often letters were replayed."""
    return Histories(*rows.the_row(connection, _SQL["histories"], (LONG_HISTORY,)))
