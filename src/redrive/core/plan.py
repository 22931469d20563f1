"""
What acting on many letters means.

Owns the plan: a query, a cut-off, an action, an author and a reason. Whoever acts
on more than one letter stores a plan first and carries it out page by page.
Knows no store: a store freezes each page and moves the plan's cursor in one transaction.
"""

from __future__ import annotations

import msgspec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A set of letters fixed by query and cut-off, and what to do with them."""

    id: str = ""  # a store names a plan that has none
    verb: str  # replay, archive, cancel, restore, purge
    query: str
    by: str
    reason: str
    cutoff: int  # only letters whose token is at most this: later movers are not in the plan
    limit: int | None = None  # act on at most so many (a canary)
    cursor: int = 0  # the last letter looked at, in the store's own order
    acted: int = 0
    skipped: int = 0
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
    skipped: int


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what, to how many, when and why; written in the act's own transaction."""

    seq: int
    at_us: int
    by: str
    verb: str
    target: str  # a letter's id, a queue's name, or a plan's id with its query
    count: int
    reason: str = ""
