"""
What a letter is.

Owns the record that every source, store and operator shares, and its words.
Knows no rule: `decide` says where a letter goes next.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any, Literal

import msgspec
from msgspec.structs import astuple

from redrive.core.checks.drafts import EARLIEST_US, LATEST_US, are_headers, check, is_deep
from redrive.core.letter.ids import spelled
from redrive.errors import DraftError

# gc=False: these structs hold plain data and never refer back to themselves, and there are many of them.

JSON = "application/json"
BYTES = "application/octet-stream"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Status(StrEnum):
    """Where a letter stands. Five words, and no others, in code, SQL, API and pages."""

    PENDING = "pending"  # runs once it is due
    IN_FLIGHT = "in_flight"  # a worker holds it until its lease ends
    DELIVERED = "delivered"  # handled
    FAILED = "failed"  # a dead letter: stays until an operator acts
    ARCHIVED = "archived"  # an operator decided that it needs no handling


class Priority(IntEnum):
    """Which letters go first; low ones get a tenth of the claims, never nothing."""

    HIGH = 0
    MEDIUM = 1
    LOW = 2


class Category(StrEnum):
    """What kind of failure it was."""

    TRANSIENT = "transient"
    NETWORK = "network"
    RESOURCE = "resource"
    PERMISSION = "permission"
    VALIDATION = "validation"
    PERMANENT = "permanent"


AfterFailure = Literal["wait", "run", "fail"]  # what a letter does when one of its `after` is dead
UniqueIn = Literal["kind", "queue"]  # among which letters of its queue an idempotency key is unique


class Failure(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What went wrong in one attempt, as data: sanitised, cut, and with the rule that judged it."""

    error_type: str
    message: str  # what it says, and its causes and members in lines of their own
    category: Category
    rule: str  # which rule classified it, in words
    terminal: bool = False
    retry_after: float | None = None  # seconds; a floor for the next delay
    frames: tuple[str, ...] = ()  # "module:function", outermost first
    fingerprint: str = ""
    template: str = ""  # the message with its changing parts replaced; a group's title
    release: str | None = None  # the version of the code that failed
    place: str = ""  # "module:function:line", the innermost in the user's code
    traceback: str = ""  # frames and source lines, cut; no values
    own_text: str | None = None  # what the message begins with, if it names causes or members; else the message is it


class Try(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One line of the attempt log of the current cycle."""

    attempt: int
    at: datetime  # by the store's clock
    why: str
    error_type: str = ""
    error: str = ""
    category: str = ""
    rule: str = ""
    delay: float = 0.0  # seconds until the next try, after jitter, cap, floor and budget
    draw: float = 0.0  # the die that jitter used
    policy: str = ""
    age: float = 0.0  # seconds that the cycle had lasted when this was decided
    retry_after: float | None = None  # seconds that the error asked for
    place: str = ""  # "module:function:line"
    traceback: str = ""  # only the newest of a cycle is kept


class FailureCycle(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One run from pending to failed, kept when a replay starts the next. Its JSON only ever grows."""

    attempts: int
    losses: int = 0
    error_type: str = ""
    last_error: str = ""
    category: str = ""
    fingerprint: str = ""
    why: str = ""
    first_failed_at: datetime | None = None
    failed_at: datetime | None = None
    tries: tuple[Try, ...] = ()
    generation: int | None = None
    release: str | None = None
    replayed_at: datetime | None = None
    replayed_by: str = ""
    reason: str = ""
    plan: str = ""


class Letter(msgspec.Struct, frozen=True, gc=False, kw_only=False):
    """
    One piece of work that must not be lost.

    Instants are whole microseconds since the epoch in fields that end in `_us`;
    the properties that end in `_at` give them as aware UTC datetimes.
    The order of the fields is the order in which stores read their columns.
    """

    id: str
    queue: str
    kind: str
    payload: bytes
    content_type: str = JSON
    key: str | None = None
    idempotency_key: str | None = None
    priority: Priority = Priority.MEDIUM
    due_us: int = 0
    attempts: int = 0  # tries begun in this cycle
    losses: int = 0  # claims lost with their process in this cycle
    policy: str | None = None  # an override given at enqueue, as text
    generation: int | None = None
    origin: str | None = None
    handler: str | None = None
    tenant: str | None = None
    cycles: int = 0  # how many ended in failure_history, also those no longer kept there
    cycle_us: int = 0  # when this cycle began
    created_us: int = 0
    updated_us: int = 0
    payload_version: int = 1
    status: Status = Status.PENDING
    token: int = 0  # the fence: grows with every move
    worker: str | None = None
    category: str | None = None
    error_type: str | None = None
    last_error: str | None = None
    fingerprint: str | None = None
    why: str | None = None  # the last move's reason
    first_failed_us: int | None = None
    failed_us: int | None = None
    applied_policy: str | None = None  # the policy of the last decision, as text
    release: str | None = None  # the version of the code that failed
    plan: str | None = None  # the plan by which an operator acted on it last; None if that was by id
    waits_for: int = 0  # how many letters it still waits for: its `after`, or an earlier one of its key
    unique_in: UniqueIn = "kind"  # `queue`: its idempotency key is also unique among such keys of its queue
    headers: tuple[tuple[str, bytes], ...] = ()
    metadata: dict[str, Any] = {}
    after: tuple[str, ...] = ()
    after_failure: AfterFailure = "wait"  # when one of them is dead: wait on, run all the same, or fail too
    tries: tuple[Try, ...] = ()
    failure_history: tuple[FailureCycle, ...] = ()

    @property
    def due_at(self) -> datetime:
        """When it may run."""
        return instant(self.due_us)

    @property
    def created_at(self) -> datetime:
        """When it was accepted."""
        return instant(self.created_us)

    @property
    def updated_at(self) -> datetime:
        """When it last moved."""
        return instant(self.updated_us)

    @property
    def first_failed_at(self) -> datetime | None:
        """When this cycle failed for the first time."""
        return None if self.first_failed_us is None else instant(self.first_failed_us)

    @property
    def failed_at(self) -> datetime | None:
        """When it became a dead letter."""
        return None if self.failed_us is None else instant(self.failed_us)


_NAMED = 8  # fields of a draft that are looked at one by one
_PLAIN: tuple[Any, ...] = ()  # what most drafts hold in those behind them
_ALIVE: tuple[Any, ...] = ()  # … and in those that speak of a failure


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A letter to be put: what the sender says; the store adds the rest."""

    id: str
    queue: str
    kind: str
    payload: bytes
    content_type: str = JSON
    key: str | None = None
    idempotency_key: str | None = None
    priority: Priority = Priority.MEDIUM
    delay: float = 0.0  # seconds from the store's now
    due_us: int | None = None  # an absolute instant; wins over delay
    policy: str | None = None
    generation: int | None = None
    origin: str | None = None
    handler: str | None = None
    tenant: str | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    metadata: dict[str, Any] = {}
    after: tuple[str, ...] = ()
    unique_in: UniqueIn = "kind"  # `queue`: its idempotency key is also unique among such keys of its queue
    failure: Failure | None = None  # a letter that failed in another system: kept as a dead letter at once
    attempts: int = 0  # … after so many tries
    first_failed_us: int | None = None  # … the first of which failed then
    failed_us: int | None = None  # … and the last then; the store's now if absent
    retry: bool = False  # … and is to be tried again when it is due: kept as pending, after one try if none is given
    again: bool = False  # … also if its idempotency key is kept: that letter then learns of this failure
    after_failure: AfterFailure = "wait"  # what it does when a letter of its `after` is dead
    accepted_us: int | None = None  # when it was accepted if a spool kept it first; sources and users leave it out
    counters: str = ""  # of a letter `again`: these counters get `exhausted` in the same transaction if no try is left
    draw: float = 0.0  # … and the chance, in [0, 1), for the delay if the policy of the letter that is kept follows it

    def __post_init__(self) -> None:
        """Raise DraftError for what no store could keep as it is, spell ids alike; quick for what most drafts hold."""
        given = astuple(self)
        id_, queue, kind, payload, _, key, idempotency_key, priority = given[:_NAMED]
        if (
            (given[_NAMED:] != _PLAIN and not _has_usual_extras(given))
            or type(id_) is not str
            or not id_.islower()
            or type(kind) is not str
            or not kind
            or type(queue) is not str
            or type(payload) is not bytes
            or (key is not None and type(key) is not str)
            or (idempotency_key is not None and type(idempotency_key) is not str)
            or type(priority) is not Priority
        ):
            check(self)
            msgspec.structs.force_setattr(self, "id", spelled(self.id))
            msgspec.structs.force_setattr(self, "after", tuple(map(spelled, self.after)))


_DEAD, _KEY = Draft.__struct_fields__.index("failure"), Draft.__struct_fields__.index("idempotency_key")


def _has_usual_extras(given: tuple[Any, ...]) -> bool:
    """Whether the draft says, beside its names, only what sources say of every letter, and that is sound."""
    _, due_us, policy, generation, origin, handler, tenant, headers, metadata, after, unique_in = given[_NAMED:_DEAD]
    return (
        due_us is policy is generation is handler is tenant is None
        and after == ()
        and given[_NAMED] == 0.0
        and given[_DEAD:] == _ALIVE
        and (origin is None or type(origin) is str)
        and (unique_in == "kind" or (unique_in == "queue" and given[_KEY] is not None))
        and type(headers) is tuple
        and are_headers(headers)
        and type(metadata) is dict
        and not is_deep(metadata)
        and spelled(given[0]) == given[0]
    )


_PLAIN = astuple(Draft("a", "a", "a", b""))[_NAMED:]
_ALIVE = _PLAIN[_DEAD - _NAMED :]


def age_of(letter: Letter, now_us: int) -> float:
    """Return for how many seconds the cycle of *letter* has lasted; none if the clock was set back since."""
    return max(0, now_us - letter.cycle_us) / 1e6


def instant(micros: int) -> datetime:
    """Return *micros* since the epoch as an aware UTC datetime; what is beyond all dates is the last, or the first."""
    return _EPOCH + timedelta(0, 0, min(max(micros, EARLIEST_US), LATEST_US))


def micros(moment: datetime) -> int:
    """Return *moment* in whole microseconds since the epoch; raise DraftError unless it is aware."""
    if moment.utcoffset() is None:
        raise DraftError(f"{moment.isoformat()} has no time zone; give an aware datetime, such as datetime.now(UTC)")
    return (moment - _EPOCH) // timedelta(microseconds=1)
