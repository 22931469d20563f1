"""
Group failures and say what they look like.

Owns the verdict on a group. The rules, in order; the first that holds gives the verdict:

1. the worker died while running the letter: *poison* (the letter kills its worker);
2. every failure is of category network or resource: *dependency* (what the handler calls is away);
3. at least 10 letters, and at least half of all finished letters of the same kinds failed this
   way: *systemic* (the code or its surroundings, not the letters);
4. every failure is of category validation or permanent, or letters of the same kinds were
   delivered: *poison* (these letters, not their siblings);
5. otherwise *unclear*: too few finished letters to tell.

Knows no store beyond its groups and its maintained counts.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from redrive.core.letter import Category, Status, instant
from redrive.core.query import parse
from redrive.core.query.terms import quoted
from redrive.core.why import Why
from redrive.desk.views import place_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.stores.contract import Group, Store, Tally

CRASHED = str(Why.WORKER_CRASHED)  # the fingerprint of every such letter
_ELSEWHERE = {Category.NETWORK, Category.RESOURCE}
_OWN_FAULT = {Category.VALIDATION, Category.PERMANENT}
_ENOUGH = 10


class Verdict(StrEnum):
    """What a group of failures looks like."""

    POISON = "poison"
    SYSTEMIC = "systemic"
    DEPENDENCY = "dependency"
    UNCLEAR = "unclear"


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """Failed letters that share a fingerprint, and a verdict with its reason."""

    group: str
    error_type: str
    title: str
    count: int
    kinds: list[str]
    categories: list[str]
    first_seen_at: datetime
    last_seen_at: datetime
    verdict: str
    explanation: str
    place: str  # where the newest of them failed: module:function:line in the user's code


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """The groups that match, biggest first."""

    groups: list[GroupView]


async def groups(store: Store, query_text: str = "", *, limit: int = 50) -> Groups:
    """Group the failed letters that match; an empty query groups all of them."""
    found = await store.groups(parse(query_text), limit=limit)
    sums = Sums(await store.tallies() if found else [])
    return Groups(groups=[_view(group, sums, await _place(store, group)) for group in found])


async def _place(store: Store, group: Group) -> str:
    """Return where the newest letter of *group* failed; the fingerprint itself knows no lines."""
    if not group.fingerprint:
        return ""
    query = parse(f"status:failed group:{quoted(group.fingerprint)}")
    newest = await store.find(query, limit=1, payloads=False)
    return place_of(newest.letters[0].tries) if newest.letters else ""


class Sums:
    """The maintained counts, summed once for all groups."""

    def __init__(self, tallies: Sequence[Tally]) -> None:
        self.by_kind: Counter[tuple[str, str]] = Counter()  # status and kind
        self.by_group: Counter[str] = Counter()
        for tally in tallies:
            self.by_kind[tally.status, tally.kind] += tally.count
            if tally.status == Status.FAILED:
                self.by_group[tally.fingerprint] += tally.count

    def of(self, status: Status, kinds: Sequence[str]) -> int:
        """Return how many letters of *kinds* are in *status*."""
        return sum(self.by_kind[status, kind] for kind in kinds)


def judge(group: Group, sums: Sums) -> tuple[Verdict, str]:
    """Return the verdict on *group* and the rule that gave it, in words."""
    categories = set(group.categories)
    delivered, failed = sums.of(Status.DELIVERED, group.kinds), sums.of(Status.FAILED, group.kinds)
    this_way = max(group.count, sums.by_group[group.fingerprint])
    if group.fingerprint == CRASHED:
        return Verdict.POISON, "workers died while running these letters"
    if categories and categories <= _ELSEWHERE:
        return Verdict.DEPENDENCY, f"every failure is of category {_words(categories)}: what the handler calls is away"
    if this_way >= _ENOUGH and 2 * this_way >= delivered + failed:
        return Verdict.SYSTEMIC, f"{this_way} of {delivered + failed} finished letters of {_kinds(group)} fail this way"
    if categories and categories <= _OWN_FAULT:
        return Verdict.POISON, f"every failure is of category {_words(categories)}: trying again unchanged cannot help"
    if delivered:
        return Verdict.POISON, f"{this_way} failed this way while others of {_kinds(group)} were delivered: {delivered}"
    return Verdict.UNCLEAR, f"too few finished letters of {_kinds(group)} to tell"


def _view(group: Group, sums: Sums, place: str) -> GroupView:
    verdict, explanation = judge(group, sums)
    return GroupView(
        group=group.fingerprint,
        error_type=group.error_type,
        title=group.title,
        count=group.count,
        kinds=list(group.kinds),
        categories=list(group.categories),
        first_seen_at=instant(group.first_seen_us),
        last_seen_at=instant(group.last_seen_us),
        verdict=str(verdict),
        explanation=explanation,
        place=place,
    )


def _words(categories: set[str]) -> str:
    return " or ".join(sorted(categories))


def _kinds(group: Group) -> str:
    return ", ".join(sorted(group.kinds))
