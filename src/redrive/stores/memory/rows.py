"""
Where the letters stand.

Owns the rows of the memory store and the indexes over them, the tallies and the groups. Every change of a letter
goes through `add`, `change` or `remove`, and `ordering` then says which letters may run.
Knows no clock and no lock, and not why a letter moves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.core.letter import Priority, Status
from redrive.core.letter.sameness import Name, keys_of
from redrive.core.letter.tallies import Trait, trait_of
from redrive.stores.contract import LIVE
from redrive.stores.memory import ordering

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from redrive.core.letter import Draft, Failure, Letter


_TITLE = 500  # characters of a message that stands in for a template


@dataclass(slots=True, eq=False)
class Row:
    """One letter and what only the store knows of it."""

    seq: int
    letter: Letter
    waits_for: set[str]  # ids of `after` that are not delivered yet
    ordered: bool  # its queue keeps order per key, and it has a key
    first: bool = False  # ordered: the one of its key that may run, also while it is in flight or backs off
    in_line: bool = False  # a claim may take it once it is due
    lease_ms: int = 0  # when its claim ends, by the lease clock
    archived_from: Status = Status.FAILED


@dataclass(slots=True)
class Sighting:
    """What is remembered of a group, beyond the letters in it."""

    error_type: str
    title: str
    first_us: int
    last_us: int


DueList = list[tuple[int, int]]  # (due_us, seq), sorted: what is due is a prefix


@dataclass(slots=True)
class LetterTable:
    """All rows, and the indexes over them."""

    rows: dict[int, Row] = field(default_factory=dict)  # by seq, so in the order of arrival
    seqs: dict[str, int] = field(default_factory=dict)  # by id
    keys: dict[Name, int] = field(default_factory=dict)  # by what comes from an idempotency key
    lines: defaultdict[tuple[str, str, Priority], DueList] = field(default_factory=lambda: defaultdict(list))
    in_flight: dict[int, Row] = field(default_factory=dict)
    failed: dict[int, Row] = field(default_factory=dict)
    lanes: defaultdict[tuple[str, str | None], dict[int, Row]] = field(
        default_factory=lambda: defaultdict(dict)
    )  # unfinished letters of ordered queues, by queue and key
    dependents: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    tallies: Counter[Trait] = field(default_factory=Counter)
    live: Counter[str] = field(default_factory=Counter)  # unfinished letters, by queue
    flying: Counter[str] = field(default_factory=Counter)  # letters in flight, by queue
    sightings: dict[str, Sighting] = field(default_factory=dict)  # by fingerprint
    newest: int = 0

    def row(self, letter_id: str) -> Row | None:
        """Return the row of *letter_id*, or None."""
        seq = self.seqs.get(letter_id)
        return None if seq is None else self.rows[seq]

    def kept_id(self, letter: Draft | Letter) -> str | None:
        """Return the id under which such a letter is already kept, or None."""
        if letter.id in self.seqs:
            return letter.id
        seq = next((self.keys[name] for name in keys_of(letter) if name in self.keys), None)
        return None if seq is None else self.rows[seq].letter.id

    def free_key(self, queue: str, kind: str, idempotency_key: str) -> None:
        """Let the letter that is kept under this key, if any, have none from now on."""
        seq = self.keys.get((queue, kind, idempotency_key))
        if seq is not None:
            row = self.rows[seq]
            self._forget_keys(row.letter)
            row.letter = replace(row.letter, idempotency_key=None)

    def _forget_keys(self, letter: Letter) -> None:
        for name in keys_of(letter):
            del self.keys[name]

    def delivered(self, letter_id: str) -> bool:
        """Return whether *letter_id* needs no more waiting for."""
        row = self.row(letter_id)
        return row is not None and row.letter.status is Status.DELIVERED

    def add(self, letter: Letter, *, ordered: bool, waits_for: set[str] | None = None) -> Row:
        """Keep a new letter, which waits for those of its `after` that are not delivered, or for *waits_for*."""
        self.newest += 1
        if waits_for is None:
            waits_for = {other for other in letter.after if not self.delivered(other)}
        row = Row(self.newest, letter, waits_for, ordered and letter.key is not None)
        self.rows[row.seq], self.seqs[letter.id] = row, row.seq
        self.keys |= dict.fromkeys(keys_of(letter), row.seq)
        for other in waits_for:
            self.dependents[other].add(row.seq)
        self.tallies[Trait(letter.queue, letter.kind, "enqueued")] += 1
        self.enter(row)
        ordering.stand(self, row)
        return row

    def change(self, row: Row, letter: Letter) -> None:
        """Let *row* hold *letter* from now on."""
        comes_back = letter.status is Status.PENDING and row.letter.status not in LIVE
        self.leave(row)
        row.letter = letter
        self.enter(row)
        if comes_back and row.ordered:
            ordering.line_up(self, letter.queue, letter.key)
        ordering.stand(self, row)
        if letter.status is Status.DELIVERED:
            ordering.free_dependents(self, letter.id)

    def remove(self, row: Row) -> None:
        """Forget *row*; letters that waited for it in vain go on waiting."""
        letter = row.letter
        self.leave(row)
        del self.rows[row.seq], self.seqs[letter.id]
        self._forget_keys(letter)
        for other in row.waits_for:
            self.dependents[other].discard(row.seq)
        self.tallies[Trait(letter.queue, letter.kind, "purged")] += 1

    def note_failure(self, failure: Failure, now: int) -> None:
        """Remember that a letter of this group died at *now*."""
        title = failure.template or failure.message[:_TITLE]
        first = Sighting(failure.error_type, title, now, now)
        self.sightings.setdefault(failure.fingerprint, first).last_us = now

    def due(self, queue: str, kinds: Iterable[str], priority: Priority, now: int) -> Iterator[Row]:
        """Yield the runnable letters due at *now*, oldest due first."""
        heads = []
        for kind in dict.fromkeys(kinds):
            line = self.lines.get((queue, kind, priority), [])
            heads.extend(line[: bisect_left(line, (now + 1, 0))])
        for _, seq in sorted(heads):
            yield self.rows[seq]

    def enter(self, row: Row) -> None:
        """Put *row* into every index that its letter belongs to."""
        letter = row.letter
        self.tallies[trait_of(letter)] += 1
        if letter.status is Status.FAILED:
            self.failed[row.seq] = row
        if letter.status is Status.IN_FLIGHT:
            self.in_flight[row.seq] = row
            self.flying[letter.queue] += 1
        if letter.status in LIVE:
            self.live[letter.queue] += 1
        if letter.status in LIVE and row.ordered:
            self.lanes[letter.queue, letter.key][row.seq] = row
            row.first = row.first or letter.status is Status.IN_FLIGHT
        else:
            row.first = False

    def leave(self, row: Row) -> None:
        """Take *row* out of every index; its letter is about to change."""
        letter = row.letter
        self._count_down(trait_of(letter))
        ordering.leave_line(self, row)
        if letter.status is Status.FAILED:
            del self.failed[row.seq]
        if letter.status is Status.IN_FLIGHT:
            del self.in_flight[row.seq]
            self.flying[letter.queue] -= 1
        if letter.status in LIVE:
            self.live[letter.queue] -= 1
        if letter.status in LIVE and row.ordered:
            del self.lanes[letter.queue, letter.key][row.seq]

    def _count_down(self, counted: Trait) -> None:
        self.tallies[counted] -= 1
        if not self.tallies[counted]:
            del self.tallies[counted]
