"""
One write transaction: what every operation in it shares.

Owns the transaction's instant, the numbers it hands out and the counts it changes.
Knows no operation: put, claim, settle and the rest are functions that take a Transaction.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.core.letter.tallies import Trait
from redrive.stores.sqlite.arrivals import Arrivals
from redrive.stores.sqlite.file.stranger_wal import next_mark
from redrive.stores.sqlite.sql import statements

if TYPE_CHECKING:
    import apsw

    from redrive.stores.clock import StoreClock

BOOT_SHIFT = 43  # a lease is milliseconds of boot clock; the boot's number stands above them


def _comes_and_goes(trait: Trait) -> bool:
    """Whether the count is nothing again and again, so that its row stays."""
    return trait.status in ("pending", "in_flight") and not trait.category and not trait.policy


class QueueRow(NamedTuple):
    """A queue's shared settings and its rate allowance."""

    name: str
    ordered: int = 0
    max_size: int | None = None
    rate: float | None = None
    max_in_flight: int | None = None
    paused: int = 0
    paused_by: str = ""
    reason: str = ""
    allowance: float = 0.0
    allowance_at: int = 0


QUEUE = ", ".join(QueueRow._fields)  # its columns
_SQL = statements("transaction", queue=QUEUE)
COUNTED = {1: _SQL["counted_in_one"], 2: _SQL["counted_in_two"]}  # by the number of statuses
_NUMBERS, _KEEP_NUMBERS = _SQL["numbers"], _SQL["keep_numbers"]  # sent by every transaction
_COUNT, _COUNT_TWO = _SQL["count"], _SQL["count_two"]


class Transaction:
    """A write transaction under way."""

    def __init__(self, connection: apsw.Connection, clock: StoreClock, boot: int, *, row_by_row: bool = False) -> None:
        self.sql = connection.execute
        self.connection = connection
        self.now_us = clock.wall_us()
        self._boot_ms = clock.lease_ms()
        self._boot = boot
        self._before = connection.total_changes()
        given: tuple[int, int, bytes, int, int] = self.sql(_NUMBERS).fetchone()  # type: ignore[assignment]
        self._token, self._seq, self._mark, self._schema, self.version = given
        self._given = given[:2]
        self._deltas: Counter[Trait] = Counter()
        self.row_by_row = row_by_row  # an earlier try of these operations broke a constraint
        self.arrivals = Arrivals()
        self._queues: dict[str, QueueRow] | None = None
        self._room: dict[str, int] = {}  # how many letters more a queue takes, less those that are in `arrivals`
        self.seen_groups: set[str] = set()  # groups noted in this transaction
        self.wakes = False  # whether the commit wakes waiting workers: letters became runnable by a put or an act

    def next_token(self) -> int:
        """Return a number greater than every one given before."""
        self._token += 1
        return self._token

    def next_seq(self, count: int = 1) -> int:
        """Return the next letter's seq, the first of *count*."""
        first = self._seq + 1
        self._seq += count
        return first

    def lease(self, seconds: float) -> int:
        """Return the lease that ends *seconds* from now."""
        return (self._boot << BOOT_SHIFT) + self._boot_ms + int(seconds * 1000)

    def tally(self, trait: Trait, change: int) -> None:
        """Count *change* letters more with *trait*."""
        self._deltas[trait] += change

    def moved(self, before: Trait, after: Trait, count: int = 1) -> None:
        """Count *count* letters from one trait to another."""
        self._deltas[before] -= count
        self._deltas[after] += count

    def counted(self, queue: str, *statuses: str) -> int:
        """Return how many letters of *queue* are in *statuses*, the changes of this transaction included."""
        (kept,) = self.sql(COUNTED[len(statuses)], (queue, *statuses)).fetchone() or (0,)
        return int(kept) + sum(
            n for trait, n in self._deltas.items() if trait.queue == queue and trait.status in statuses
        )

    def has_room(self, queue: QueueRow) -> bool:
        """Take up the room of a letter, as if it were no duplicate; False if that cannot be said so quickly."""
        if queue.max_size is None:
            return True
        if queue.name not in self._room:
            self._room[queue.name] = queue.max_size - self.counted(queue.name, "pending", "in_flight")
        self._room[queue.name] -= 1
        return self._room[queue.name] >= 0

    @property
    def queues(self) -> dict[str, QueueRow]:
        """The queues' shared settings, read once a transaction."""
        if self._queues is None:
            self._queues = {row[0]: QueueRow(*row) for row in self.sql(_SQL["queues"])}
        return self._queues

    def queue(self, name: str) -> QueueRow:
        """Return the settings of *name*, the defaults if no application declared it."""
        return self.queues.get(name) or QueueRow(name)

    def forget_queues(self) -> None:
        """Read the queues again: this transaction changed them."""
        self._queues = None
        self._room.clear()

    def audit(self, by: str, verb: str, target: str, count: int, reason: str) -> None:
        """Write who did what, in the act's own transaction."""
        self.sql(_SQL["audit"], (self.now_us, by, verb, target, count, reason))

    def insert_arrivals(self) -> None:
        """Insert the plain letters that were put so far, before a statement looks for them."""
        self._room.clear()  # what comes now may free some, or take some
        if not self.arrivals:
            return
        arrived = self.arrivals.insert(self.connection, self.next_token(), self.now_us, self.lease(0))
        for (queue, kind), count in arrived.items():
            self.tally(Trait(queue, kind, "enqueued"), count)
            self.tally(Trait(queue, kind, "pending"), count)

    def finish(self) -> None:
        """Write the numbers and counts; the last thing before the commit."""
        self.insert_arrivals()
        changes = [(*trait, n) for trait, n in self._deltas.items() if n]
        if changes:
            self._count(changes)
            self._forget_empty([trait for trait, n in self._deltas.items() if n < 0 and not _comes_and_goes(trait)])
        if self._changed:
            self.sql(_KEEP_NUMBERS, (self._token, self._seq, next_mark(self._mark, self._schema)))

    def _count(self, changes: list[tuple[Any, ...]]) -> None:
        if len(changes) == 2:  # noqa: PLR2004 - letters of one kind came in: they are enqueued, and they are pending
            self.sql(_COUNT_TWO, (*changes[0], *changes[1]))
        else:
            self.connection.executemany(_COUNT, changes)

    @property
    def _changed(self) -> bool:
        """Whether there is anything to commit: a transaction that found nothing must not wake the other processes."""
        numbers = (self._token, self._seq) != self._given
        return numbers or self.connection.total_changes() != self._before

    def _forget_empty(self, traits: list[Trait]) -> None:
        """Drop counts that came to nothing: each distinct error has a row of its own, and they would stay for ever."""
        if traits:
            self.connection.executemany(_SQL["forget_empty"], traits)
