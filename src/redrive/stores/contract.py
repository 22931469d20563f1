"""
What every store promises.

Owns the seam between the engine, the desk and whatever keeps the letters. One
parametrised suite (tests/stores) holds every store to these sentences.
Knows no policy: a store never computes a delay or judges an error. It adds its own
clock to the spans it is given, so no method here takes a "now".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from redrive.core.letter import Letter, Status
from redrive.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redrive.core.breaker import Breaker, BreakerRules
    from redrive.core.budget import BudgetRules
    from redrive.core.letter import Draft
    from redrive.core.moves import Move
    from redrive.core.plan import AuditEntry, Plan, PlanState, Step
    from redrive.core.query import Query
    from redrive.core.waiting import Standing


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


def seq_of(claim: Claim) -> int:
    """Return the row of a claim; only for a store that numbers its rows."""
    return claim.ref  # type: ignore[return-value]


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
    """What an application declares about a queue; shared by everybody who uses the store."""

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
    """How long, in seconds, letters are kept after they came to rest; None keeps them for ever."""

    delivered: float | None = 7 * 86_400.0
    archived: float | None = 30 * 86_400.0
    failed: float | None = None  # dead letters vanish by time only if the user says so
    handled: float | None = 30 * 86_400.0  # handled keys, from when no letter with the key is kept any more


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


class Store(Protocol):
    """Keeps letters. Every write is one transaction; every move is fenced by the letter's token."""

    features: Features

    async def open(self) -> None:
        """Make the store ready, its schema included; raise StoreUnavailable or SchemaMismatch."""

    async def close(self) -> None:
        """Finish what was accepted, then let go of everything; may be called twice."""

    # ------------------------------------------------------------------ letters in

    async def put(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """
        Keep *drafts*, all or none; durable once it returns.

        A draft whose id, or whose idempotency key within queue and kind, is already kept
        (or came earlier in the same call) changes nothing and is a duplicate. A draft that is unique in its queue is
        one also if another such draft of the queue, of whatever kind, has its key.
        A draft `again` changes the letter that has its key as `core.changes.put_again` says; if that letter is
        delivered or archived, it loses the key to a new letter.
        Raise QueueFull if a queue would exceed its max_size.
        """

    # ------------------------------------------------------------------ work

    async def claim(self, wants: Sequence[Want], *, lease: float, worker: str) -> list[Claim]:
        """
        Claim due letters, each for one caller only, oldest due first within a priority.

        Every claim counts an attempt and raises the token. Paused queues give none; global
        rate and max_in_flight hold; in an ordered queue a key has at most one letter in flight.
        """

    async def take(self, letter_id: str, *, lease: float, worker: str) -> Claim | None:
        """
        Claim one pending letter now, due or not, as a person asked for it; None if it is not pending or waits.

        Pauses and the queue's limits do not hold it up.
        """

    async def settle(self, settlements: Sequence[tuple[Claim, Move]]) -> tuple[bool, ...]:
        """Carry out each move; False where the claim is no longer held, and nothing changes there."""

    async def exchange(
        self, settlements: Sequence[tuple[Claim, Move]], wants: Sequence[Want], *, lease: float, worker: str
    ) -> Exchanged:
        """Settle and claim in one round trip; never settle without saying so, never claim and forget."""

    async def extend(self, beat: WorkerBeat, claims: Sequence[Claim], *, lease: float) -> list[Claim]:
        """Record the worker's sign of life, renew *claims*, and return those no longer held."""

    async def expired(self, limit: int) -> list[Claim]:
        """
        Return claims whose lease ended or whose worker is known to be dead; settling them is fenced like any other.

        The payloads of their letters are empty: what becomes of a lost letter does not depend on it.
        """

    async def leave(self, worker: str) -> None:
        """Forget *worker*, which has ended in order; what it still holds is rescued as a dead worker's would be."""

    async def backlog(self, wants: Sequence[Want]) -> Backlog:
        """
        Return what is left of these queues and kinds; letters that wait for others are not runnable.

        The wants of one call have one generation; what runs is counted whatever its generation.
        """

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the wait itself is the operation
        """Return early, with True, when letters may have become due through somebody's put or act."""

    # ------------------------------------------------------------------ shared state

    async def declare(self, specs: Sequence[QueueSpec]) -> None:
        """Make the queues' settings known to everybody; a queue's pause is not touched."""

    async def queues(self) -> list[QueueState]:
        """Return every queue that was declared or has letters, by name."""

    async def pause(self, queue: str, *, paused: bool, by: str, reason: str) -> None:
        """Pause or resume *queue*, with an audit entry in the same transaction."""

    async def workers(self) -> list[WorkerBeat]:
        """Return the workers seen lately, by name; *alive* while their lease lasts."""

    async def breakers(self) -> dict[str, Breaker]:
        """Return every breaker as it stands now."""

    async def report(self, name: str, rules: BreakerRules, *, successes: int, failures: int) -> Breaker:
        """
        Add outcomes to the breaker *name* and return it.

        Breakers and budgets go by the store's wall clock, which all workers share: a clock that jumps ends a rest
        early, and never prolongs it.
        """

    async def probe(self, name: str, rules: BreakerRules, limit: int) -> int:
        """Return how many of *limit* trial letters the breaker *name* lets through now."""

    async def spend(self, queue: str, rules: BudgetRules, *, firsts: int, retries: int) -> float:
        """Add *firsts* to the retry budget of *queue*, take *retries*, return the least wait in seconds."""

    async def add_up(self, name: str, amounts: Mapping[str, int]) -> dict[str, int]:
        """Add *amounts* to the counters *name*, which all processes share, and return all of them; they only grow."""

    async def handled(self, handler: str, key: str) -> bool:
        """Note that *handler* handled *key*; False if that was noted before."""

    # ------------------------------------------------------------------ the operator's side

    async def get(self, letter_id: str) -> Letter | None:
        """Return the letter, or None."""

    async def standing(self, letter_id: str) -> Standing | None:
        """Return what a pending letter waits for, in one snapshot; None if there is no such letter, or it is not."""

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50, payloads: bool = True) -> Page:
        """
        Return a page of matching letters, newest first.

        Without *payloads* theirs are empty: a list of large letters is then as quick as one of small ones.
        """

    async def count(self, query: Query, *, at_most: int = 10_000) -> int:
        """Count matching letters, but not beyond *at_most*."""

    async def groups(self, query: Query, *, limit: int = 50) -> list[Group]:
        """Group the failed letters that match, biggest group first."""

    async def tallies(self, status: str | None = None) -> list[Tally]:
        """Return the maintained counts, all from one snapshot; with *status* only those, without reading the others."""

    async def oldest_failed(self) -> Letter | None:
        """Return the dead letter that has waited longest."""

    async def histories(self) -> Histories:
        """Return how often letters were replayed, along an index: a history that grows is seen before it hurts."""

    async def act(
        self, verb: str, letter_ids: Sequence[str], *, by: str, reason: str, generation: int | None = None
    ) -> list[Letter]:
        """
        Replay, archive, cancel, restore or purge these letters, all or none, with an audit entry.

        Raise LetterNotFound or MoveRefused. A replay keeps id and idempotency key, appends the
        cycle to failure_history and starts again at once.
        """

    async def start_plan(self, plan: Plan) -> Plan:
        """Keep *plan*, named if it has no id; its cut-off is this moment: letters that move later are not in it."""

    async def step(self, plan_id: str, *, limit: int, worker: str = "", lease: float = 0.0) -> Step:
        """
        Look at the next *limit* letters that may match a plan, and act on those that do.

        *worker* then holds the plan for *lease* seconds; if another process holds it, or it is not running, nothing
        happens. Cursor, acts, lease and audit entry are one transaction. A step may act on none although letters are
        left. A letter that matched when the store looked, but had moved when it came to act, is skipped; others count
        nowhere. A step of no letters and no lease lets the plan go.
        """

    async def plan(self, plan_id: str) -> Plan:
        """Return a plan, with whether a worker holds it now; raise PlanNotFound."""

    async def plans(self, state: PlanState | None = None, *, limit: int = 100) -> list[Plan]:
        """Return plans, newest first; those that are running or paused are found without looking at all others."""

    async def change_plan(self, plan_id: str, verb: str, *, by: str, reason: str, rate: float | None = None) -> Plan:
        """
        Pause, resume or halt a plan, with an audit entry; a *rate* that is given replaces the plan's.

        Raise PlanNotFound, or MoveRefused for a plan that has ended.
        """

    async def edit(
        self, letter_id: str, payload: bytes, content_type: str, *, version: int, by: str, reason: str
    ) -> Letter:
        """Replace the payload of a pending, failed or archived letter if its payload_version is *version*."""

    async def record(self, by: str, verb: str, target: str, count: int, reason: str) -> None:
        """Write an audit entry for an act on what is not in this store, such as a dead-letter topic."""

    async def audit(self, *, limit: int = 100) -> list[AuditEntry]:
        """Return the newest audit entries, newest first."""

    async def retain(self, retention: Retention, *, limit: int = 5_000) -> int:
        """
        Look at some letters and remove those past their retention (counted as purged); return how many.

        Also forget groups that no failed or archived letter belongs to and that were last seen a day ago or longer.
        """


class Migrates(Protocol):
    """A store whose schema is brought up to date on purpose, not when it is opened."""

    async def migrate(self) -> list[str]:
        """
        Bring the schema up to date; workers of the release before go on meanwhile.

        Return, a sentence each, what the operator may want to know: what could not be done, and the way out.
        """

    async def script(self) -> str:
        """Return what `migrate` would do, as SQL; nothing if the schema is up to date."""


class Broadcasts(Protocol):
    """A store that gives an event to every handler that subscribed to it."""

    async def broadcast(self, limit: int = 500) -> list[Spread] | None:
        """
        Make a letter per subscription of each due event without a target, and deliver the event, in one transaction.

        An event without subscribers stays pending. None if nobody subscribes to anything.
        """

    async def subscriptions(self) -> list[Subscription]:
        """Return every subscription, by event and handler."""

    async def subscribe(self, subscription: Subscription, *, by: str) -> bool:
        """Keep a subscription, with an audit entry; False, and no entry, if it is kept already."""

    async def unsubscribe(self, event: str, handler: str, *, by: str) -> bool:
        """Remove a subscription, with an audit entry; False if there is none."""


def as_broadcaster(store: Store) -> Broadcasts | None:
    """Return *store* as one that broadcasts events; None if it does not."""
    return cast("Broadcasts", store) if store.features.broadcast else None


def as_migrated(store: Store) -> Migrates | None:
    """Return *store* as one whose schema is migrated on purpose; None if opening it does that."""
    return cast("Migrates", store) if store.features.migrations else None


_LONGEST_CURSOR = 18  # digits: places fit 64 bits
LIVE = (Status.PENDING, Status.IN_FLIGHT)


def place_of(cursor: str | None) -> int | None:
    """Return where a page starts; raise QueryError for what no page ended with."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= _LONGEST_CURSOR):
        message = f"cannot go on from the cursor {cursor[:40]!r}: no page ended with it; leave it out to begin anew"
        raise QueryError(message)
    return int(cursor)


def total(tallies: Sequence[Tally], **traits: str) -> int:
    """Sum the tallies that have all of *traits*."""
    return sum(t.count for t in tallies if all(getattr(t, name) == value for name, value in traits.items()))


def orphans(tallies: Sequence[Tally], workers: Sequence[WorkerBeat]) -> dict[tuple[str, str], int]:
    """Return how many letters wait, by queue and kind, where no live worker takes that kind from that queue."""
    alive = [beat for beat in workers if beat.alive]
    waiting: Counter[tuple[str, str]] = Counter()
    for tally in tallies:
        if tally.status == "pending" and tally.count and not any(b.handles(tally.queue, tally.kind) for b in alive):
            waiting[tally.queue, tally.kind] += tally.count
    return dict(sorted(waiting.items()))


def books(tallies: Sequence[Tally]) -> Mapping[str, int]:
    """Return the books: `enqueued` must equal the sum of all others, in any one snapshot."""
    names = ("enqueued", *(str(status) for status in Status), "purged")
    return {name: total(tallies, status=name) for name in names}
