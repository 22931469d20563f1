"""
What acting on many letters means.

Owns the plan (a query, a cut-off, an action, an author and a reason), how a page of letters advances it, when it ends,
which process may carry it out, and what pausing, resuming and halting do to it. An operator who acts on more than one
letter stores a plan first; then one process carries it out page by page, and holds a lease on it while it does.
Knows no store: a store reads a page, acts on it and keeps the advanced plan in one transaction.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from redrive.errors import MoveRefused

LEASE = 5.0  # seconds that a process has for one page before another may go on with the plan
PAGE = 2_000  # letters


class PlanState(StrEnum):
    """Where a plan stands; one that is halted or done stays so."""

    RUNNING = "running"
    PAUSED = "paused"
    HALTED = "halted"
    DONE = "done"


_OPEN = (PlanState.RUNNING, PlanState.PAUSED)
_CHANGES = {"pause": PlanState.PAUSED, "resume": PlanState.RUNNING, "halt": PlanState.HALTED}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A set of letters fixed by query and cut-off, and what to do with them."""

    id: str = ""  # a store names a plan that has none
    verb: str  # replay, archive, cancel, restore, purge
    query: str
    by: str
    reason: str
    cutoff: str = ""  # the moment it began; letters that move later are not in it. Only its store can read this
    limit: int | None = None  # act on at most so many (a canary)
    cursor: str = ""  # how far it has looked. Only its store can read this
    acted: int = 0
    skipped: int = 0  # letters that matched, but had moved before the plan could act on them
    state: PlanState = PlanState.RUNNING
    created_us: int = 0
    ended_us: int = 0  # when it was done or halted; 0 while it is open
    generation: int | None = None
    rate: float | None = None  # act on at most so many letters a second
    holder: str = ""  # the process that carries it out
    held_until: int = 0  # when its lease ends, by the lease clock of the plan's store
    held: bool = False  # when read: whether the lease lasts

    @property
    def done(self) -> bool:
        """Whether all its letters were acted on."""
        return self.state is PlanState.DONE

    @property
    def is_open(self) -> bool:
        """Whether letters may still be acted on by it, now or once it is resumed."""
        return self.state in _OPEN

    def name(self, token: int, now_us: int) -> str:
        """Return its id, or one made of a store's instant and newest token: of two stores the instants differ."""
        return self.id or f"{now_us:x}-{token:x}"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one page of a plan came to."""

    plan: Plan
    acted: tuple[str, ...]  # ids, in order
    skipped: int = 0  # letters that matched, but had moved


def begun(plan: Plan, token: int, now_us: int) -> Plan:
    """Return *plan* as a store keeps it first: named, cut off at *token*, with nothing done yet."""
    fresh = {"cursor": "", "acted": 0, "skipped": 0, "ended_us": 0, "holder": "", "held_until": 0, "held": False}
    state = plan.state if plan.is_open else PlanState.RUNNING
    return replace(plan, id=plan.name(token, now_us), cutoff=str(token), created_us=now_us, state=state, **fresh)


def room(plan: Plan, limit: int) -> int:
    """Return on how many letters the next page of *limit* may act."""
    return limit if plan.limit is None else min(limit, plan.limit - plan.acted)


def advance(plan: Plan, *, cursor: str, acted: int, skipped: int, further: bool, now_us: int) -> Plan:
    """
    Return *plan* after a page, carried out at *now_us*, that looked as far as *cursor*.

    *skipped* counts the letters that matched the query and the cut-off when the store looked, but had moved when it
    came to act. A letter that does not match counts nowhere. The plan ends when no letter that could match is left
    *further* on, or when it has acted on as many as it may.
    """
    done = not further or plan.acted + acted == plan.limit
    state = PlanState.DONE if done else plan.state
    after = replace(plan, cursor=cursor, acted=plan.acted + acted, skipped=plan.skipped + skipped, state=state)
    return _ended(after, now_us) if done else after


def _ended(plan: Plan, now_us: int) -> Plan:
    """Return *plan*, done or halted at *now_us*, with no process that carries it out."""
    return replace(let_go(plan), ended_us=now_us)


def is_over(plan: Plan, before_us: int) -> bool:
    """Say whether retention may remove *plan*: it ended at *before_us* or earlier. An open plan is never over."""
    return not plan.is_open and plan.ended_us <= before_us


# ---------------------------------------------------------------------- who carries it out


def may_step(plan: Plan, worker: str, now: int) -> bool:
    """Say whether *worker* may carry out the next page at *now*: no other process holds a lease that lasts."""
    return plan.state is PlanState.RUNNING and not (plan.held_until > now and plan.holder != worker)


def taken(plan: Plan, worker: str, until: int, now: int) -> Plan:
    """Return *plan* held by *worker* until its lease ends; a lease that has ended by *now* is none."""
    return let_go(plan) if until <= now else replace(plan, holder=worker, held_until=until, held=True)


def let_go(plan: Plan) -> Plan:
    """Return *plan* with no process that carries it out."""
    return replace(plan, holder="", held_until=0, held=False)


def as_read(plan: Plan, now: int) -> Plan:
    """Return *plan* as a reader sees it at *now*, by the lease clock of its store."""
    held = plan.held_until > now
    return plan if plan.held is held else replace(plan, held=held)


def changed(plan: Plan, verb: str, *, now_us: int, rate: float | None = None) -> Plan:
    """
    Return *plan* after an operator's pause, resume or halt at *now_us*; a *rate* that is given replaces the plan's.

    The process that carries it out sees the change before its next page. Raise MoveRefused if the plan has ended.
    """
    if not plan.is_open and _CHANGES[verb] is not plan.state:
        raise MoveRefused(f"cannot {verb} plan {plan.id!r}: it is {plan.state}, and stays so; start another plan")
    after = replace(plan, state=_CHANGES[verb], rate=plan.rate if rate is None else rate)
    if after.state is PlanState.RUNNING:
        return after
    return let_go(after) if after.is_open or not plan.is_open else _ended(after, now_us)


def page_size(rate: float | None, page: int = PAGE) -> int:
    """Return on how many letters to act at once: never on more than one second's worth."""
    return page if rate is None else max(1, min(page, int(rate)))


def rest_after(acted: int, rate: float | None) -> float:
    """Return how many seconds to rest after a page that acted on so many letters."""
    return acted / rate if rate else 0.0


def lease_for(rate: float | None, page: int = PAGE) -> float:
    """Return for how many seconds a process holds a plan with each page: the rest after it included."""
    return LEASE + rest_after(page_size(rate, page), rate)


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what, to how many, when and why; written in the act's own transaction."""

    seq: int
    at_us: int
    by: str
    verb: str
    target: str  # a letter's id, a queue's name, or a plan's id with its query
    count: int
    reason: str = ""
