"""
Letters at work.

Owns claiming, settling, leases and what is left to do. Every settlement is fenced: it
counts only while the letter is in flight under the claim's own token.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.core import changes, priority_shares
from redrive.core.letter import Priority, Status, age_of
from redrive.stores.contract import Backlog, Claim, seq_of
from redrive.stores.memory import ordering

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redrive.stores.contract import Want, WorkerBeat
    from redrive.stores.memory.rows import Row
    from redrive.stores.memory.transaction import Ledger

_SEEN_LATELY = 3_600_000_000  # microseconds: a worker silent for an hour is no longer listed


def claim(ledger: Ledger, wants: Sequence[Want], token: int, *, lease: float, worker: str) -> list[Claim]:
    """Hand out due letters; all of one call share its *token*."""
    rows = [row for want in wants for row in _taken(ledger, want, token, worker)]
    for row in rows:
        row.lease_ms = ledger.lease(lease)
    return [claim_of(ledger, row) for row in rows]


def take(ledger: Ledger, letter_id: str, token: int, *, lease: float, worker: str) -> Claim | None:
    """Hand out one pending letter, due or not; None if it is not pending or waits for others."""
    row = ledger.shelf.row(letter_id)
    if row is None or row.letter.status is not Status.PENDING or ordering.waits(ledger.shelf, row):
        return None
    ledger.shelf.change(row, replace(changes.claimed(row.letter, worker, ledger.now_us), token=token))
    row.lease_ms = ledger.lease(lease)
    return claim_of(ledger, row)


def _taken(ledger: Ledger, want: Want, token: int, worker: str) -> list[Row]:
    rows = _chosen(ledger, want)
    now = ledger.now_us
    for row in rows:
        ledger.shelf.change(row, replace(changes.claimed(row.letter, worker, now), token=token))
    ledger.doors.of(want.queue).begin(len(rows))
    return rows


def _chosen(ledger: Ledger, want: Want) -> list[Row]:
    door = ledger.doors.of(want.queue)
    door.refill(ledger.now_ms / 1_000)
    limit = int(min(want.limit, door.room(ledger.shelf.flying[want.queue])))
    streams = [_due(ledger, want, priority) for priority in Priority]
    rows, ledger.dealt = priority_shares.take(streams, limit, ledger.dealt)
    return rows


def _due(ledger: Ledger, want: Want, priority: Priority) -> Iterator[Row]:
    for row in ledger.shelf.due(want.queue, want.kinds, priority, ledger.now_us):
        if want.generation is None or row.letter.generation in (None, want.generation):
            yield row


def held(ledger: Ledger, claim: Claim) -> Row | None:
    """Return the row that *claim* still holds, or None."""
    row = ledger.shelf.rows.get(seq_of(claim))
    if row is None or row.letter.status is not Status.IN_FLIGHT or row.letter.token != claim.token:
        return None
    return row


def extend(ledger: Ledger, beat: WorkerBeat, claims: Sequence[Claim], lease: float) -> list[Claim]:
    """Note the worker's sign of life, renew its claims, return those it lost."""
    until = ledger.lease(lease)
    ledger.beats[beat.name] = (replace(beat, seen_us=ledger.now_us, alive=True), until)
    lost = []
    for claim in claims:
        row = held(ledger, claim)
        if row is None:
            lost.append(claim)
        else:
            row.lease_ms = until
    return lost


def workers(ledger: Ledger) -> list[WorkerBeat]:
    """Return the workers seen lately, by name."""
    since, now_ms = ledger.now_us - _SEEN_LATELY, ledger.now_ms
    holds = Counter(row.letter.worker for row in ledger.shelf.in_flight.values())
    seen = (ledger.beats[name] for name in sorted(ledger.beats))
    return [
        replace(beat, alive=now_ms <= until, in_flight=holds[beat.name])
        for beat, until in seen
        if beat.seen_us >= since
    ]


def expired(ledger: Ledger, limit: int) -> list[Claim]:
    """Return claims whose lease ended, the longest ended first."""
    now = ledger.now_ms
    over = sorted((row.lease_ms, seq) for seq, row in ledger.shelf.in_flight.items() if row.lease_ms < now)
    claims = [claim_of(ledger, ledger.shelf.rows[seq]) for _, seq in over[:limit]]
    return [replace(claim, letter=replace(claim.letter, payload=b"")) for claim in claims]


def claim_of(ledger: Ledger, row: Row) -> Claim:
    """Return the claim on *row* as it stands."""
    letter = replace(row.letter, metadata=changes.copied(row.letter.metadata))
    return Claim(letter, row.seq, age_of(letter, ledger.now_us))


def backlog(ledger: Ledger, wants: Sequence[Want]) -> Backlog:
    """Return what is left of these queues and kinds; nothing runs in a paused queue."""
    pairs = {(want.queue, kind) for want in wants for kind in want.kinds}
    open_pairs = {(queue, kind) for queue, kind in pairs if not ledger.doors.of(queue).paused}
    lines = ((line, queue, kind) for (queue, kind, _), line in ledger.shelf.lines.items())
    mine = [_first_due(ledger, line, wants[0].generation) for line, queue, kind in lines if (queue, kind) in open_pairs]
    heads = [due for due in mine if due is not None]
    flying = sum((row.letter.queue, row.letter.kind) in pairs for row in ledger.shelf.in_flight.values())
    next_due = max(0, min(heads) - ledger.now_us) / 1_000_000 if heads else None
    return Backlog(runnable=bool(heads), in_flight=flying, next_due=next_due)


def _first_due(ledger: Ledger, line: Sequence[tuple[int, int]], generation: int | None) -> int | None:
    """Return when the first letter of *line* that a worker of this generation may have is due."""
    fitting = (None, generation)
    found = (due for due, seq in line if generation is None or ledger.shelf.rows[seq].letter.generation in fitting)
    return next(found, None)
