"""
Claims: taking due letters, renewing leases, finding those that ended.

Owns who may run what and for how long, and what is left to do. A claim counts only while the letter is in flight
under the claim's own token. What becomes of a claim is `settling`.
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
    from redrive.stores.memory.transaction import Contents

_SEEN_LATELY = 3_600_000_000  # microseconds: a worker silent for an hour is no longer listed


def claim(contents: Contents, wants: Sequence[Want], token: int, *, lease: float, worker: str) -> list[Claim]:
    """Hand out due letters; all of one call share its *token*."""
    rows = [row for want in wants for row in _taken(contents, want, token, worker)]
    for row in rows:
        row.lease_ms = contents.lease(lease)
    return [claim_of(contents, row) for row in rows]


def take(contents: Contents, letter_id: str, *, waiting: bool, lease: float, worker: str) -> Claim | None:
    """Hand out one pending letter, due or not; None if it is not pending, or waits for others unless *waiting*."""
    row = contents.table.row(letter_id)
    if row is None or row.letter.status is not Status.PENDING:
        return None
    if ordering.waits(contents.table, row) and not (waiting and ordering.goes_before(contents.table, row) is None):
        return None
    token = contents.next_token()
    contents.table.change(row, replace(changes.claimed(row.letter, worker, contents.now_us), token=token))
    row.lease_ms = contents.lease(lease)
    return claim_of(contents, row)


def _taken(contents: Contents, want: Want, token: int, worker: str) -> list[Row]:
    rows = _chosen(contents, want)
    now = contents.now_us
    for row in rows:
        contents.table.change(row, replace(changes.claimed(row.letter, worker, now), token=token))
    contents.queues.of(want.queue).begin(len(rows))
    return rows


def _chosen(contents: Contents, want: Want) -> list[Row]:
    queue = contents.queues.of(want.queue)
    queue.refill(contents.now_ms / 1_000)
    limit = int(min(want.limit, queue.room(contents.table.flying[want.queue])))
    streams = [_due(contents, want, priority) for priority in Priority]
    rows, contents.dealt = priority_shares.take(streams, limit, contents.dealt)
    return rows


def _due(contents: Contents, want: Want, priority: Priority) -> Iterator[Row]:
    for row in contents.table.due(want.queue, want.kinds, priority, contents.now_us):
        if want.generation is None or row.letter.generation in (None, want.generation):
            yield row


def held(contents: Contents, claim: Claim) -> Row | None:
    """Return the row that *claim* still holds, or None."""
    row = contents.table.rows.get(seq_of(claim))
    if row is None or row.letter.status is not Status.IN_FLIGHT or row.letter.token != claim.token:
        return None
    return row


def extend(contents: Contents, beat: WorkerBeat, claims: Sequence[Claim], lease: float) -> list[Claim]:
    """Note the worker's sign of life, renew its claims, return those it lost."""
    until = contents.lease(lease)
    contents.beats[beat.name] = (replace(beat, seen_us=contents.now_us, alive=True), until)
    lost = []
    for claim in claims:
        row = held(contents, claim)
        if row is None:
            lost.append(claim)
        else:
            row.lease_ms = until
    return lost


def workers(contents: Contents) -> list[WorkerBeat]:
    """Return the workers seen lately, by name."""
    since, now_ms = contents.now_us - _SEEN_LATELY, contents.now_ms
    holds = Counter(row.letter.worker for row in contents.table.in_flight.values())
    seen = (contents.beats[name] for name in sorted(contents.beats))
    return [
        replace(beat, alive=now_ms <= until, in_flight=holds[beat.name])
        for beat, until in seen
        if beat.seen_us >= since
    ]


def expired(contents: Contents, limit: int) -> list[Claim]:
    """Return claims whose lease ended, the longest ended first."""
    now = contents.now_ms
    over = sorted((row.lease_ms, seq) for seq, row in contents.table.in_flight.items() if row.lease_ms < now)
    claims = [claim_of(contents, contents.table.rows[seq]) for _, seq in over[:limit]]
    return [replace(claim, letter=replace(claim.letter, payload=b"")) for claim in claims]


def claim_of(contents: Contents, row: Row) -> Claim:
    """Return the claim on *row* as it stands."""
    letter = replace(row.letter, metadata=changes.copied(row.letter.metadata))
    return Claim(letter, row.seq, age_of(letter, contents.now_us))


def backlog(contents: Contents, wants: Sequence[Want]) -> Backlog:
    """Return what is left of these queues and kinds; nothing runs in a paused queue."""
    pairs = {(want.queue, kind) for want in wants for kind in want.kinds}
    open_pairs = {(queue, kind) for queue, kind in pairs if not contents.queues.of(queue).paused}
    lines = ((line, queue, kind) for (queue, kind, _), line in contents.table.lines.items())
    mine = [
        _first_due(contents, line, wants[0].generation) for line, queue, kind in lines if (queue, kind) in open_pairs
    ]
    heads = [due for due in mine if due is not None]
    flying = sum((row.letter.queue, row.letter.kind) in pairs for row in contents.table.in_flight.values())
    next_due = max(0, min(heads) - contents.now_us) / 1_000_000 if heads else None
    return Backlog(runnable=bool(heads), in_flight=flying, next_due=next_due)


def _first_due(contents: Contents, line: Sequence[tuple[int, int]], generation: int | None) -> int | None:
    """Return when the first letter of *line* that a worker of this generation may have is due."""
    fitting = (None, generation)
    found = (due for due, seq in line if generation is None or contents.table.rows[seq].letter.generation in fitting)
    return next(found, None)
