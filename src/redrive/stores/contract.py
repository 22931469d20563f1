"""
What every store promises.

Owns the seam between the engine, the desk and the stores that keep the letters. One
parametrised suite (tests/stores) holds every store to these sentences.
Knows no policy: a store never computes a delay or judges an error. It adds its own
clock to the spans it is given, so no method here takes a "now". The values that methods take and
return are in `values.py`, what is computed from them in `sums.py`; both can be imported from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from redrive.stores.sums import LIVE, books, orphans, place_of, total
from redrive.stores.values import (
    LONG_HISTORY,
    Backlog,
    Claim,
    Exchanged,
    Features,
    Group,
    Histories,
    LensGroup,
    Page,
    QueueSpec,
    QueueState,
    Receipt,
    Retention,
    Spread,
    Subscription,
    Tally,
    Want,
    WorkerBeat,
    seq_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redrive.core.breaker import Breaker, BreakerRules
    from redrive.core.budget import BudgetRules
    from redrive.core.letter import Draft, Letter
    from redrive.core.moves import Move
    from redrive.core.plan import AuditEntry, Plan, PlanState, Step
    from redrive.core.query import Lens, Query
    from redrive.core.waiting import Standing

__all__ = [
    "AGAIN",
    "LIVE",
    "LONG_HISTORY",
    "Backlog",
    "Broadcasts",
    "Claim",
    "Exchanged",
    "Features",
    "Group",
    "Histories",
    "LensGroup",
    "Migrates",
    "Page",
    "QueueSpec",
    "QueueState",
    "Receipt",
    "Retention",
    "Spread",
    "Store",
    "Subscription",
    "Tally",
    "Want",
    "WorkerBeat",
    "as_broadcaster",
    "as_migrated",
    "books",
    "orphans",
    "place_of",
    "seq_of",
    "total",
]


AGAIN = "redrive.again"  # under this handler a store notes which drafts `again` changed a letter


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
        one also if another such draft of the queue has its key, even under another kind.
        A draft `again` changes the letter that has its key as `core.changes.put_again` says; if that letter is
        delivered or archived, it loses the key to a new letter. It does so once: the same draft put again changes
        nothing. Its `counters` get what `core.following.used_up` says, in the same transaction.
        Raise QueueFull if a queue would exceed its max_size.
        """

    # ------------------------------------------------------------------ work

    async def claim(self, wants: Sequence[Want], *, lease: float, worker: str) -> list[Claim]:
        """
        Claim due letters, each for one caller only, oldest due first within a priority.

        Every claim counts an attempt and raises the token. Paused queues give none; global
        rate and max_in_flight hold; in an ordered queue a key has at most one letter in flight.
        """

    async def take(self, letter_id: str, *, lease: float, worker: str, waiting: bool = False) -> Claim | None:
        """
        Claim one pending letter now, due or not, as a person asked for it; None if it is not pending or waits.

        Pauses and the queue's limits do not hold it up. *waiting* claims one of `stranded`, which waits for others.
        """

    async def stranded(self, limit: int, *, queue: str | None = None) -> list[str]:
        """
        Let letters go on whose `after` will not come: those of `after_failure` run wait for a dead letter no longer.

        Dead are failed and archived letters, and those that are gone. Return up to *limit* ids of pending letters of
        `after_failure` fail that wait for a dead one; a letter behind another of its key is not among them. With
        *queue*, only letters of that queue are looked at.
        """

    async def settle(self, settlements: Sequence[tuple[Claim, Move]]) -> tuple[bool, ...]:
        """Carry out each move; False where the claim is no longer held, and nothing changes there."""

    async def settle_counted(self, claim: Claim, move: Move, name: str, amounts: Mapping[str, int]) -> bool:
        """Carry out *move* and `add_up` in one transaction; False, and nothing changes, if *claim* is not held."""

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

        The wants of one call have one generation; what runs is counted in every generation.
        """

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the wait itself is the operation
        """Return early, with True, when letters may have become due through a put or an act of any process."""

    # ------------------------------------------------------------------ shared state

    async def declare(self, specs: Sequence[QueueSpec]) -> None:
        """Share the queues' settings with all processes; a queue's pause is not touched."""

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

    async def dependents(self, letter_ids: Sequence[str]) -> list[tuple[str, str]]:
        """Return pairs: one of *letter_ids*, and a letter that waits for it (pending), or would after a replay."""

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50, payloads: bool = True) -> Page:
        """
        Return a page of matching letters, newest first.

        Without *payloads* theirs are empty: a list of large letters is then as quick as one of small ones.
        """

    async def count(self, query: Query, *, at_most: int = 10_000) -> int:
        """Count matching letters, but not beyond *at_most*."""

    async def groups(self, query: Query, *, limit: int = 50) -> list[Group]:
        """Group the failed letters that match, biggest group first."""

    async def groups_by(self, lens: Lens, query: Query, *, limit: int = 50) -> list[LensGroup]:
        """
        Group the failed letters that match by what they have under *lens*, biggest group first.

        Reads every failed letter that the query cannot rule out by an index; no writer of a database waits for it.
        """

    async def tallies(self, status: str | None = None) -> list[Tally]:
        """Return the maintained counts, all from one snapshot; with *status* only those, without reading the others."""

    async def oldest_failed(self) -> Letter | None:
        """Return the dead letter that has waited longest."""

    async def histories(self) -> Histories:
        """Return how often letters were replayed, along an index: a history that grows is seen before it hurts."""

    async def act(
        self,
        verb: str,
        letter_ids: Sequence[str],
        *,
        by: str,
        reason: str,
        generation: int | None = None,
        adds: tuple[str, Mapping[str, int]] | None = None,
    ) -> list[Letter]:
        """
        Replay, archive, cancel, restore or purge these letters, all or none, with an audit entry.

        *adds* is `add_up` in the same transaction: the name of counters, and what is added to them. Raise
        LetterNotFound or MoveRefused. A replay keeps id and idempotency key, appends the cycle to failure_history and
        starts again at once.
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

        Also forget groups that no failed or archived letter belongs to and that were last seen a day ago or longer,
        and plans that were done or halted longer ago than their retention.
        """


class Migrates(Protocol):
    """A store whose schema is brought up to date on purpose, not when it is opened."""

    async def migrate(self) -> list[str]:
        """
        Bring the schema up to date; workers of the version before keep running.

        Return, a sentence each, what the operator may want to know: what could not be done, and the way out.
        """

    async def script(self) -> str:
        """Return what `migrate` would do, as SQL; nothing if the schema is up to date."""


class Broadcasts(Protocol):
    """A store that gives an event to every handler that subscribed to it."""

    async def broadcast(self, limit: int = 500) -> list[Spread] | None:
        """
        Make a letter per subscription of each due event without a target, and deliver the event, in one transaction.

        An event without subscribers stays pending. None if there are no subscriptions.
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
