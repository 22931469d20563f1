"""
What happened, announced after it was stored.

Owns the facts that signals turn into log lines, counters and alerts; each has a fixed name. A fact about many
letters carries a count, because the engine works in batches. Knows no exporter, and carries no payload.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from redrive.core.letter import Category


class Enqueued(msgspec.Struct, frozen=True, kw_only=True):
    """Letters were accepted."""

    name: ClassVar[str] = "redrive.letters.enqueued"
    queue: str
    kind: str
    count: int = 1
    duplicates: int = 0  # of them, already kept


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """Letters were handled."""

    name: ClassVar[str] = "redrive.letters.delivered"
    queue: str
    kind: str
    count: int = 1
    seconds: float = 0.0  # spent in the handler since the last such fact, failed tries included


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """A try failed; the letter waits for the next."""

    name: ClassVar[str] = "redrive.letter.retried"
    id: str
    queue: str
    kind: str
    attempts: int
    error_type: str
    category: Category
    rule: str
    fingerprint: str
    delay: float  # seconds
    why: str


class Died(msgspec.Struct, frozen=True, kw_only=True):
    """A letter became a dead letter and waits for an operator."""

    name: ClassVar[str] = "redrive.letter.died"
    id: str
    queue: str
    kind: str
    attempts: int
    error_type: str
    category: Category
    rule: str
    fingerprint: str
    why: str
    handler: str = ""  # that failed
    target: str = ""  # the receiver, if the letter names one
    origin: str = ""
    last_error: str = ""  # sanitised, and cut
    place: str = ""  # "module:function:line" in the user's code
    traceback: str = ""  # frames and source lines, cut; no values

    @property
    def event(self) -> dict[str, str | None]:
        """Return its names as the outbox has them in SQL: `handler_name` is the kind, as in `event_handled`."""
        return {
            "event_id": self.id,
            "event_type": self.kind,
            "source": self.origin or None,
            "target": self.target or None,
            "handler_name": self.kind,
        }


class GivenBack(msgspec.Struct, frozen=True, kw_only=True):
    """A worker gave letters back with their attempt: a shutdown, an open breaker, a full engine."""

    name: ClassVar[str] = "redrive.letters.given_back"
    formerly: ClassVar[str] = "redrive.letters.released"  # the name from before; it goes with the next version
    queue: str
    kind: str
    why: str
    count: int = 1
    delay: float = 0.0


Released = GivenBack  # the name from before; it goes with the next version


class ClaimLost(msgspec.Struct, frozen=True, kw_only=True):
    """A worker finished a letter it no longer held; its outcome was dropped."""

    name: ClassVar[str] = "redrive.claim.lost"
    id: str
    queue: str
    kind: str
    worker: str = ""


class Rescued(msgspec.Struct, frozen=True, kw_only=True):
    """A letter was taken back from a worker that died or fell silent."""

    name: ClassVar[str] = "redrive.letter.rescued"
    id: str
    queue: str
    kind: str
    losses: int
    why: str
    worker: str = ""


class BreakerOpened(msgspec.Struct, frozen=True, kw_only=True):
    """A dependency failed too often and gets a rest."""

    name: ClassVar[str] = "redrive.breaker.opened"
    breaker: str
    failures: int
    successes: int
    rest: float  # seconds


class BreakerClosed(msgspec.Struct, frozen=True, kw_only=True):
    """A dependency passed its probes."""

    name: ClassVar[str] = "redrive.breaker.closed"
    breaker: str


class QueuePaused(msgspec.Struct, frozen=True, kw_only=True):
    """A queue gives no letters until it is resumed."""

    name: ClassVar[str] = "redrive.queue.paused"
    queue: str
    by: str
    reason: str = ""


class QueueResumed(msgspec.Struct, frozen=True, kw_only=True):
    """A queue gives letters again."""

    name: ClassVar[str] = "redrive.queue.resumed"
    queue: str
    by: str
    reason: str = ""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """Failed letters were given another cycle."""

    name: ClassVar[str] = "redrive.letters.replayed"
    count: int
    by: str
    reason: str = ""
    plan: str = ""


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """Letters were set aside by an operator: archived or cancelled."""

    name: ClassVar[str] = "redrive.letters.archived"
    count: int
    by: str
    reason: str = ""
    plan: str = ""


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """Archived letters were brought back."""

    name: ClassVar[str] = "redrive.letters.restored"
    count: int
    by: str
    reason: str = ""
    plan: str = ""


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """An operator or the retention removed letters; they are gone."""

    name: ClassVar[str] = "redrive.letters.purged"
    count: int
    by: str
    reason: str = ""
    plan: str = ""


class Edited(msgspec.Struct, frozen=True, kw_only=True):
    """A letter's payload was replaced."""

    name: ClassVar[str] = "redrive.letter.edited"
    id: str
    version: int
    by: str
    reason: str = ""


class WorkerStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A worker began to claim."""

    name: ClassVar[str] = "redrive.worker.started"
    worker: str
    kinds: tuple[str, ...] = ()


class WorkerStopped(msgspec.Struct, frozen=True, kw_only=True):
    """A worker settled or gave back what it held, and ended."""

    name: ClassVar[str] = "redrive.worker.stopped"
    worker: str
    why: str = ""
    left: tuple[str, ...] = ()  # what an idle one leaves pending, a sentence for each kind of a queue


class Abandoned(msgspec.Struct, frozen=True, kw_only=True):
    """A worker ends while a handler ignores its stop; its letter was given back and may run elsewhere."""

    name: ClassVar[str] = "redrive.handler.abandoned"
    worker: str
    handler: str
    count: int = 1  # of its letters


class Orphaned(msgspec.Struct, frozen=True, kw_only=True):
    """Letters wait for a handler that no live worker has."""

    name: ClassVar[str] = "redrive.letters.orphaned"
    queue: str
    kind: str
    count: int = 1


class BackoffUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """Letters name a backoff function that the worker does not know; it leaves them pending. Told once."""

    name: ClassVar[str] = "redrive.backoff.unknown"
    worker: str
    backoff: str
    queue: str
    kind: str


class TaskMoved(msgspec.Struct, frozen=True, kw_only=True):
    """A failed workflow was enqueued, retried, succeeded in a retry, was exhausted or archived."""

    name: ClassVar[str] = "redrive.workflow.task"
    queue: str
    event: str  # enqueued, retried, succeeded, exhausted or archived
    category: str
    policy: str  # one of the workflow queue's words
    count: int = 1


class Faulted(msgspec.Struct, frozen=True, kw_only=True):
    """A worker met a fault of redrive's own; it fails the letter concerned, if any, and goes on."""

    name: ClassVar[str] = "redrive.worker.fault"
    worker: str
    doing: str
    why: str
    frames: tuple[str, ...] = ()  # where, outermost first
    id: str = ""  # the letter concerned


class StoreAway(msgspec.Struct, frozen=True, kw_only=True):
    """A worker cannot reach its store; it keeps what it has to settle and tries again."""

    name: ClassVar[str] = "redrive.store.away"
    worker: str
    why: str


class StoreBack(msgspec.Struct, frozen=True, kw_only=True):
    """A worker reaches its store again."""

    name: ClassVar[str] = "redrive.store.back"
    worker: str


FACTS = (
    Enqueued, Delivered, Retried, Died, GivenBack, ClaimLost, Rescued, BreakerOpened, BreakerClosed, QueuePaused,
    QueueResumed, Replayed, Archived, Restored, Purged, Edited, WorkerStarted, WorkerStopped, Abandoned, Orphaned,
    BackoffUnknown, TaskMoved, Faulted, StoreAway, StoreBack,
)  # fmt: skip

Fact = (
    Enqueued
    | Delivered
    | Retried
    | Died
    | GivenBack
    | ClaimLost
    | Rescued
    | BreakerOpened
    | BreakerClosed
    | QueuePaused
    | QueueResumed
    | Replayed
    | Archived
    | Restored
    | Purged
    | Edited
    | WorkerStarted
    | WorkerStopped
    | Abandoned
    | Orphaned
    | BackoffUnknown
    | TaskMoved
    | Faulted
    | StoreAway
    | StoreBack
)


_FACT_OF_VERB: dict[str, type[Archived | Purged | Replayed | Restored]] = {
    "replay": Replayed,
    "archive": Archived,
    "cancel": Archived,
    "restore": Restored,
    "purge": Purged,
}


def fact_of_act(verb: str, count: int, *, by: str, reason: str, plan: str | None) -> Fact:
    """Return the fact that an operator's *verb* acted on *count* letters; announced after the store said yes."""
    return _FACT_OF_VERB[verb](count=count, by=by, reason=reason, plan=plan or "")
