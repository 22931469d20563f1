"""
Columns that another program may have corrupted: words, numbers and JSON.

Owns the shapes of extras, attempt logs, ended cycles and what a worker takes, the same in every store that keeps
rows. A corrupted column must not stop its letter, let alone its neighbours: it reads as empty, or as
it stands. Knows no row and no database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from redrive.core.breaker import Breaker, BreakerRules
from redrive.core.budget import Budget
from redrive.core.letter import AfterFailure, FailureCycle, Priority, Status, Try

if TYPE_CHECKING:
    from redrive.core.letter import Draft, Letter
    from redrive.stores.contract import WorkerBeat

T = TypeVar("T")


class Extras(msgspec.Struct, omit_defaults=True):
    """What few letters have, in one column."""

    headers: tuple[tuple[str, bytes], ...] = ()
    metadata: dict[str, Any] = {}
    after_failure: AfterFailure = "wait"
    after: tuple[str, ...] = ()  # the last: PostgreSQL overwrites it in place


_extras = msgspec.json.Decoder(Extras)
_tries = msgspec.json.Decoder(tuple[Try, ...])
_history = msgspec.json.Decoder(tuple[FailureCycle, ...])
_taken = msgspec.json.Decoder(tuple[str | tuple[str, ...], ...])
encode = msgspec.json.Encoder().encode
_NOTHING = Extras()
AFTER_FAILURE: dict[str, int] = {"wait": 0, "run": 1, "fail": 2}  # in the tables of who waits for whom
UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)  # no text; deeper than this Python reads


_PRIORITIES = tuple(Priority)  # looking up a member by its number takes time
_STATUSES: dict[str, Status] = {str(status): status for status in Status}


def status_of(column: str) -> Status:
    """Return the status; an unknown word stays as it is: it is shown, and no verb applies to it."""
    return _STATUSES.get(column, column)  # type: ignore[arg-type]


def priority_of(column: int) -> Priority:
    """Return the priority, or the nearest to a number that this version does not know."""
    return _PRIORITIES[min(max(column, 0), 2)]


def extras_of(draft: Draft | Letter) -> bytes | None:
    """Return the extras column of a draft or a letter; None when it has none."""
    if not (draft.headers or draft.metadata or draft.after):
        return None
    return encode(Extras(draft.headers, draft.metadata, draft.after_failure, draft.after))


def read_extras(column: bytes | None) -> Extras:
    """Decode the extras."""
    return _read(_extras, column, _NOTHING)


def read_tries(column: bytes | str | None) -> tuple[Try, ...]:
    """Decode the attempt log."""
    return _read(_tries, column, ())


def read_history(column: bytes | str | None) -> tuple[FailureCycle, ...]:
    """Decode the ended cycles."""
    return _read(_history, column, ())


class TakenKinds(NamedTuple):
    """What a worker takes: kinds, and in their order queues and breakers; without queues it takes them anywhere."""

    kinds: tuple[str, ...]
    queues: tuple[str, ...] = ()
    breakers: tuple[str, ...] = ()


def taken_by(beat: WorkerBeat) -> bytes:
    """Return what a worker takes, as it is kept: kinds, or queue, kind and breaker of each."""
    breakers = beat.breakers or ("",) * len(beat.kinds)
    return encode(list(zip(beat.queues, beat.kinds, breakers, strict=False)) or beat.kinds)


def read_taken(column: bytes | str) -> TakenKinds:
    """Decode what a worker takes; one of an earlier version says nothing of breakers."""
    entries = _read(_taken, column, ())
    placed = [(*entry, "")[:3] for entry in entries if not isinstance(entry, str)]
    if not placed:
        return TakenKinds(tuple(str(entry) for entry in entries))
    queues, kinds, breakers = zip(*placed, strict=True)
    return TakenKinds(kinds, queues, breakers)


class KeptBreaker(msgspec.Struct, frozen=True):
    """A breaker and the rules it was last asked with."""

    breaker: Breaker
    rules: BreakerRules


BREAKER = msgspec.json.Decoder(KeptBreaker)
BUDGET = msgspec.json.Decoder(Budget)


def _read(decoder: msgspec.json.Decoder[T], column: bytes | str | None, nothing: T) -> T:
    try:
        return decoder.decode(column) if column else nothing
    except UNREADABLE:
        return nothing
