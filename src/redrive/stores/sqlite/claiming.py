"""
Claims: taking due letters, renewing leases, finding those that ended.

Owns who may run what and for how long. What becomes of a claim is `settling`.
"""

from __future__ import annotations

from array import array
from collections import Counter
from heapq import merge
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import apsw

from redrive.core import rate
from redrive.core.letter import Priority, age_of
from redrive.core.letter.tallies import Trait
from redrive.core.priority_shares import take
from redrive.stores import columns
from redrive.stores.contract import Backlog, Claim, seq_of
from redrive.stores.sql_files import filled
from redrive.stores.sqlite import rows
from redrive.stores.sqlite.sql import statements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redrive.core.letter import Letter
    from redrive.stores.contract import Want, WorkerBeat
    from redrive.stores.sqlite.file.living_workers import Living
    from redrive.stores.sqlite.transaction import QueueRow, Transaction

_SQL = statements("claiming", lean=rows.LEAN, plain=rows.PLAIN, listed=rows.LISTED)
_CANDIDATES, _CLAIM, _HOLD = _SQL["candidates"], _SQL["claim"], _SQL["hold"]  # sent by every claim

Row = tuple[Any, ...]


class Claimer:
    """Takes due letters; remembers, per process, how the shares of the priorities stand."""

    def __init__(self) -> None:
        self._dealt = 0

    def claim(self, transaction: Transaction, wants: Sequence[Want], lease: float, worker: str) -> list[rows.Taken]:
        """Claim what is due, within the queues' shared limits."""
        taken = []
        for want in wants:
            limit = _allowed(transaction, want)
            if limit > 0 and (found := self._choose(transaction, want, limit)):
                taken.append(_take(transaction, want.queue, found, lease, worker))
        return taken

    def _choose(self, transaction: Transaction, want: Want, limit: int) -> list[Row]:
        cursors = [[_candidates(transaction, want, kind, priority) for kind in want.kinds] for priority in Priority]
        found, self._dealt = take([_oldest_first(streams) for streams in cursors], limit, self._dealt)
        for cursor in chain.from_iterable(cursors):
            cursor.close()
        return found


def take_one(
    transaction: Transaction,
    letter_id: str,
    lease: float,
    worker: str,
    waiting: bool,  # noqa: FBT001 - the writer passes by place
) -> list[rows.Taken]:
    """Claim one pending letter, due or not; nothing if it is not pending, or waits for others unless *waiting*."""
    row: Row | None = transaction.sql(_SQL["one_waiting" if waiting else "one"], (letter_id,)).fetchone()
    if row is None:
        return []
    return [_take(transaction, row[-1], [row[:-1]], lease, worker)]


_KIND = itemgetter(1)
_DUE = itemgetter(2, 0)
_TOKEN = attrgetter("letter.token")
_LAST_FAILURE = attrgetter("kind", "category", "applied_policy")


def _take(transaction: Transaction, queue: str, found: list[Row], lease: float, worker: str) -> rows.Taken:
    token = transaction.next_token()
    seqs = apsw.carray(array("q", [row[0] for row in found]))
    transaction.sql(_HOLD, (token, worker))
    transaction.sql(_CLAIM, (token, transaction.lease(lease), transaction.now_us, seqs))
    rich = rows.rich_of(transaction.connection, found)
    _count(transaction, queue, found, rich)
    _spend_allowance(transaction, queue, len(found))
    return rows.Taken(queue, found, rich, token, worker, transaction.now_us)


def _count(transaction: Transaction, queue: str, found: list[Row], rich: dict[int, Letter]) -> None:
    """Count letters as in flight; only a letter with a past is counted by its last failure until then."""
    for kind, count in Counter(map(_KIND, found)).items():
        transaction.moved(Trait(queue, kind, "pending"), Trait(queue, kind, "in_flight"), count)
    for (kind, category, policy), count in Counter(map(_LAST_FAILURE, rich.values())).items():
        if category or policy:
            before = Trait(queue, kind, "pending", category or "", policy or "")
            transaction.moved(before, Trait(queue, kind, "pending"), count)


def _candidates(transaction: Transaction, want: Want, kind: str, priority: int) -> apsw.Cursor:
    bindings = (want.queue, kind, int(priority), transaction.now_us, want.generation)
    return transaction.sql(_CANDIDATES, bindings)


def _oldest_first(cursors: Sequence[apsw.Cursor]) -> Iterator[Row]:
    """Merge lazily: no more rows are read than are taken."""
    return iter(cursors[0]) if len(cursors) == 1 else merge(*cursors, key=_DUE)


def _allowed(transaction: Transaction, want: Want) -> int:
    """Return how many letters the queue's shared settings let this want have."""
    queue = transaction.queue(want.queue)
    if queue.paused:
        return 0
    limit = want.limit
    if queue.max_in_flight is not None:
        limit = min(limit, queue.max_in_flight - transaction.counted(want.queue, "in_flight"))
    if queue.rate is not None:
        limit = min(limit, rate.room(_bucket(transaction, queue)))
    return limit


def _bucket(transaction: Transaction, queue: QueueRow) -> rate.Bucket:
    """Return what the rate lets begin now, by the lease clock: the wall clock may jump."""
    kept = rate.Bucket(queue.allowance, queue.allowance_at / 1e3)
    return rate.refilled(kept, queue.rate or 0.0, transaction.lease(0) / 1e3)


def _spend_allowance(transaction: Transaction, name: str, count: int) -> None:
    queue = transaction.queue(name)
    if queue.rate is not None:
        left = rate.taken(_bucket(transaction, queue), count)
        transaction.sql(_SQL["spend"], (left.allowance, transaction.lease(0), name))
        transaction.forget_queues()


def extend(
    transaction: Transaction, beat: WorkerBeat, claims: Sequence[Claim], lease: float, living: Living
) -> list[Claim]:
    """Record a sign of life, renew *claims*, return those no longer held."""
    until = transaction.lease(lease)
    transaction.sql(
        _SQL["beat"],
        (beat.name, columns.taken_by(beat), beat.in_flight, transaction.now_us, until),
    )
    _forget_silent(transaction, living)
    transaction.sql(_SQL["forget_holders"])
    return [claim for token, group in by_token(claims).items() for claim in _renew(transaction, token, group, until)]


def _forget_silent(transaction: Transaction, living: Living) -> None:
    """Forget workers that were last seen an hour ago and whose lease is over."""
    bindings = (transaction.now_us - 3_600_000_000, transaction.lease(0))
    silent = [str(name) for (name,) in transaction.sql(_SQL["silent"], bindings)]
    for name in silent:
        living.bury(name)
    if silent:
        transaction.sql(_SQL["forget_silent"], bindings)


def leave(transaction: Transaction, worker: str) -> bool:
    """Forget a worker that has ended; False if it still holds letters: then it is kept until they are rescued."""
    settled = not _holds(transaction, worker)
    transaction.sql(_SQL["leave" if settled else "end_lease"], (worker,))
    return settled


def bury(transaction: Transaction, living: Living) -> None:
    """Remove what dead workers left next to the file, once nothing that they held needs it any more."""
    for name in [str(name) for (name,) in transaction.sql(_SQL["workers"])]:
        if living.is_dead(name) and not _holds(transaction, name):
            transaction.sql(_SQL["end_lease"], (name,))
            living.bury(name)


def _holds(transaction: Transaction, worker: str) -> bool:
    return transaction.sql(_SQL["holds"], (worker,)).fetchone() is not None


def by_token(claims: Sequence[Claim]) -> dict[int, list[Claim]]:
    """Sort *claims* by the act that made them: one statement can then handle many."""
    groups: dict[int, list[Claim]] = {}
    for token, group in groupby(claims, key=_TOKEN):  # claims of one act mostly come together
        groups.setdefault(token, []).extend(group)
    return groups


def _renew(transaction: Transaction, token: int, claims: list[Claim], until: int) -> list[Claim]:
    seqs = apsw.carray(array("q", [seq_of(claim) for claim in claims]))
    transaction.sql(_SQL["renew"], (until, seqs, token))
    if transaction.connection.changes() == len(claims):
        return []
    held = held_of(transaction, token, claims)
    return [claim for claim in claims if seq_of(claim) not in held]


def held_of(transaction: Transaction, token: int, claims: Sequence[Claim]) -> set[int]:
    """Return the seqs of those *claims* that still hold."""
    seqs = apsw.carray(array("q", [seq_of(claim) for claim in claims]))
    return {row[0] for row in transaction.sql(_SQL["held"], (seqs, token))}


def expired(
    connection: apsw.Connection, lease_now: int, now_us: int, limit: int, is_dead: Callable[[str], bool]
) -> list[Claim]:
    """Return claims whose lease ended, and those of workers that are known to be dead, oldest first."""
    dead = [name for (name,) in connection.execute(_SQL["workers"]) if is_dead(str(name))]
    sql = filled(_SQL["expired_or_dead"], {"names": ", ".join("?" * len(dead))}) if dead else _SQL["expired"]
    found: list[Row] = connection.execute(sql, (lease_now, *dead, limit)).fetchall()
    letters = [(row[0], rows.letter_of(connection, row)) for row in found]
    return [Claim(letter, seq, age_of(letter, now_us)) for seq, letter in letters]


def backlog(connection: apsw.Connection, wants: Sequence[Want], now_us: int) -> Backlog:
    """Return what is left of these queues and kinds."""
    paused = {row[0] for row in connection.execute(_SQL["paused"])}
    open_wants = [want for want in wants if want.queue not in paused]
    pairs = {(want.queue, kind, want.generation) for want in open_wants for kind in want.kinds}
    due = [moment for pair in pairs for moment in _next_due(connection, *pair)]
    in_flight = sum(_in_flight(connection, want.queue, kind) for want in wants for kind in want.kinds)
    return Backlog(bool(due), in_flight, max(0.0, (min(due) - now_us) / 1e6) if due else None)


def _next_due(connection: apsw.Connection, queue: str, kind: str, generation: int | None) -> list[int]:
    asked = [(queue, kind, int(priority), generation) for priority in Priority]
    found = (connection.execute(_SQL["next_due"], bindings).fetchone() for bindings in asked)
    return [row[0] for row in found if row is not None]


def _in_flight(connection: apsw.Connection, queue: str, kind: str) -> int:
    return int(rows.the_row(connection, _SQL["in_flight"], (queue, kind))[0])
