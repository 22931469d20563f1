"""
What goes into a store and comes out of it, as values.

Owns what a store can promise (`Features`), receipts, claims, wants, heartbeats, queues, tallies, groups and pages.
Knows no store: `contract.py` says which method takes and returns them.
"""

from __future__ import annotations

from collections.abc import Hashable
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from redrive.core.letter import Letter

if TYPE_CHECKING:
    from collections.abc import Callable


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a store promises.

    Wiring, the desk, the engine and the test suite ask here. What a store does not promise, it refuses with
    NotSupported, and the suite checks that it does.
    """

    durable: bool  # what it accepted survives the process
    shared: bool  # several processes may use it at once
    hosts: bool = False  # … on several hosts
    one_loop: bool = False  # its connections belong to the event loop that opened it
    atomic_batches: bool = True  # a put, an act or a page of a plan happens as a whole, with its audit entry
    snapshots: bool = True  # all counts of one call belong together
    ordered: bool = True  # order per key
    waits: bool = True  # a letter may wait for others: its `after`
    limits: bool = True  # a queue's rate and max_in_flight hold over all workers
    retries: bool = True  # put takes a letter that another system tried first: `Draft.retry`
    pending_traits: bool = True  # pending letters are counted by category and policy
    search: bool = True  # fast substring search over error texts
    broadcast: bool = False  # it gives an event to every subscriber: `Broadcasts`
    migrations: bool = False  # its schema is brought up to date on purpose: `Migrates`
    copies: bool = True  # letters can be copied from it and to it: `Copyable`
    transactions: bool = False  # letters can be enqueued in the user's own transaction: the outbox
    spools: bool = False  # it accepts letters while the store behind it is away: `Spooling`


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The answer to a put: the id that is kept, and whether it was kept before."""

    id: str
    duplicate: bool = False
    spooled: bool = False  # the store is away: the letter is durable in the spool, and forwarded when it is back


class Want(msgspec.Struct, frozen=True):
    """Up to *limit* due letters of these *kinds* from one *queue*."""

    queue: str
    kinds: tuple[str, ...]
    limit: int
    generation: int | None = None  # only letters of this generation (and those of none)


class Claim(msgspec.Struct, frozen=True, gc=False):
    """The right to settle one letter, as long as its token is the newest."""

    letter: Letter
    ref: Hashable  # which row it is; only the store that made the claim can read it
    age: float  # seconds since this cycle began, when it was claimed

    @property
    def token(self) -> int:
        """The fence."""
        return self.letter.token

    @property
    def attempts(self) -> int:
        """Tries begun in this cycle, this one included."""
        return self.letter.attempts

    @property
    def losses(self) -> int:
        """Claims lost with their process in this cycle."""
        return self.letter.losses


seq_of: Callable[[Claim], int] = attrgetter("ref")  # the row of a claim; only for a store that numbers its rows


class Exchanged(msgspec.Struct, frozen=True):
    """What an exchange came to: per settlement whether it was accepted, and the new claims."""

    accepted: tuple[bool, ...]
    claims: list[Claim]


class WorkerBeat(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's sign of life; *name* is unique per process start."""

    name: str
    kinds: tuple[str, ...]
    queues: tuple[str, ...] = ()  # where each of the kinds is taken from, in their order; empty is anywhere
    breakers: tuple[str, ...] = ()  # which breaker each of the kinds needs, in their order; "" is none
    in_flight: int = 0  # when read: the letters that the store knows to be in its hands now
    seen_us: int = 0
    alive: bool = True

    def handles(self, queue: str, kind: str) -> bool:
        """Say whether it takes letters of *kind* from *queue*."""
        return (queue, kind) in zip(self.queues, self.kinds, strict=True) if self.queues else kind in self.kinds

    def breaker_of(self, queue: str, kind: str) -> str:
        """Return the breaker that letters of *kind* from *queue* need there, or nothing."""
        taken = zip(self.queues, self.kinds, self.breakers, strict=False)
        return next((breaker for its_queue, its_kind, breaker in taken if (its_queue, its_kind) == (queue, kind)), "")


class QueueSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What an application declares about a queue; shared by all processes that use the store."""

    name: str
    ordered: bool = False
    max_size: int | None = None  # unfinished letters (pending and in flight)
    rate: float | None = None  # letters begun per second, over all workers
    max_in_flight: int | None = None  # over all workers


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as the store knows it."""

    spec: QueueSpec
    paused: bool = False
    paused_by: str = ""
    reason: str = ""


class Backlog(msgspec.Struct, frozen=True):
    """What is left to do: letters that could run now or later, letters under way, seconds to the next due one."""

    runnable: bool
    in_flight: int
    next_due: float | None


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How many letters share these traits; *status* may also be `enqueued` or `purged` (totals)."""

    queue: str
    kind: str
    status: str
    category: str = ""
    policy: str = ""
    error_type: str = ""
    fingerprint: str = ""
    count: int


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Failed letters that share a fingerprint."""

    fingerprint: str
    error_type: str
    title: str  # the message template
    count: int
    kinds: tuple[str, ...]
    categories: tuple[str, ...]
    first_seen_us: int
    last_seen_us: int


class LensGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Failed letters that share a value under a lens."""

    value: str | None  # None: they have none
    count: int
    fingerprints: int  # how many they have, that is, how many groups they are in
    title: str  # of the fingerprint that most of them have
    first_seen_us: int  # the earliest failure of these letters, each since its last replay
    last_seen_us: int


LONG_HISTORY = 5  # cycles


class Histories(msgspec.Struct, frozen=True):
    """How often letters that are kept were replayed."""

    largest: int = 0  # cycles that the letter with the longest history has ended
    long: int = 0  # letters with more than LONG_HISTORY of them


class Page(msgspec.Struct, frozen=True):
    """Some letters, and where the next page starts (None at the end)."""

    letters: list[Letter]
    cursor: str | None


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long, in seconds, letters are kept after they came to rest, and plans; None keeps them for ever."""

    delivered: float | None = 7 * 86_400.0
    archived: float | None = 30 * 86_400.0
    failed: float | None = None  # dead letters vanish by time only if the user says so
    handled: float | None = 30 * 86_400.0  # handled keys, from when no letter with the key is kept any more
    plans: float | None = 90 * 86_400.0  # plans that are done or halted; what they did stays in the audit log


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """Every event of kind *event* gives a letter of kind *handler* in *queue*."""

    event: str
    handler: str
    queue: str = "default"


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """What a broadcast did to one kind of one queue: events delivered, letters made of them."""

    queue: str
    kind: str
    events: int = 0
    letters: int = 0
