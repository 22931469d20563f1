"""
What acting on many letters means.

Owns the plan (a query, a cut-off, an action, an author and a reason), how a page of letters advances it, and when
it ends. An operator who acts on more than one letter stores a plan first and carries it out page by page.
Knows no store: a store reads a page, acts on it and keeps the advanced plan in one transaction.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace


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
    done: bool = False
    created_us: int = 0
    generation: int | None = None

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
    fresh = {"cursor": "", "acted": 0, "skipped": 0, "done": False}
    return replace(plan, id=plan.name(token, now_us), cutoff=str(token), created_us=now_us, **fresh)


def room(plan: Plan, limit: int) -> int:
    """Return on how many letters the next page of *limit* may act."""
    return limit if plan.limit is None else min(limit, plan.limit - plan.acted)


def advance(plan: Plan, *, cursor: str, acted: int, skipped: int, further: bool) -> Plan:
    """
    Return *plan* after a page that looked as far as *cursor*.

    *skipped* counts the letters that matched the query and the cut-off when the store looked, but had moved when it
    came to act. A letter that does not match counts nowhere. The plan ends when no letter that could match is left
    *further* on, or when it has acted on as many as it may.
    """
    done = not further or plan.acted + acted == plan.limit
    return replace(plan, cursor=cursor, acted=plan.acted + acted, skipped=plan.skipped + skipped, done=done)


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what, to how many, when and why; written in the act's own transaction."""

    seq: int
    at_us: int
    by: str
    verb: str
    target: str  # a letter's id, a queue's name, or a plan's id with its query
    count: int
    reason: str = ""
