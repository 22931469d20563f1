"""
Columns that another program may have spoilt: words, numbers and JSON.

Owns the shapes of extras, attempt logs, ended cycles and what a worker takes, the same in every store that keeps
rows. A column that another program spoilt must not stop its letter, let alone its neighbours: it reads as empty, or as
it stands. Knows no row and no database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from redrive.core.letter import FailureCycle, Priority, Status, Try

if TYPE_CHECKING:
    from redrive.core.letter import Draft
    from redrive.stores.contract import WorkerBeat

T = TypeVar("T")


class Extras(msgspec.Struct, omit_defaults=True):
    """What few letters have, in one column."""

    headers: tuple[tuple[str, bytes], ...] = ()
    metadata: dict[str, Any] = {}
    after: tuple[str, ...] = ()


_extras = msgspec.json.Decoder(Extras)
_tries = msgspec.json.Decoder(tuple[Try, ...])
_history = msgspec.json.Decoder(tuple[FailureCycle, ...])
_taken = msgspec.json.Decoder(tuple[str | tuple[str, ...], ...])
encode = msgspec.json.Encoder().encode
_NOTHING = Extras()
UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)  # no text; deeper than this Python reads


_STATUSES: dict[str, Status] = {str(status): status for status in Status}


def status_of(column: str) -> Status:
    """Return the status; a word that no release knows stays what it is: it is shown, and no verb is for it."""
    return _STATUSES.get(column, column)  # type: ignore[arg-type]


def priority_of(column: int) -> Priority:
    """Return the priority, or the nearest to a number that no release knows."""
    return Priority(min(max(column, Priority.HIGH), Priority.LOW))


def extras_of(draft: Draft) -> bytes | None:
    """Return the extras column of a draft; None when it has none."""
    if not (draft.headers or draft.metadata or draft.after):
        return None
    return encode(Extras(draft.headers, draft.metadata, draft.after))


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
    """Decode what a worker takes; one of an earlier release says nothing of breakers."""
    entries = _read(_taken, column, ())
    placed = [(*entry, "")[:3] for entry in entries if not isinstance(entry, str)]
    if not placed:
        return TakenKinds(tuple(str(entry) for entry in entries))
    queues, kinds, breakers = zip(*placed, strict=True)
    return TakenKinds(kinds, queues, breakers)


def _read(decoder: msgspec.json.Decoder[T], column: bytes | str | None, nothing: T) -> T:
    try:
        return decoder.decode(column) if column else nothing
    except UNREADABLE:
        return nothing
