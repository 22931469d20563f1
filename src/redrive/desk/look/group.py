"""
Group failures and say what they look like.

Owns the view of a group. Knows no rule: `core.failures.verdict` judges, from the counts that the store maintains.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from redrive.core.failures.verdict import Evidence, judge
from redrive.core.letter import Status, instant
from redrive.core.query import parse
from redrive.core.query.terms import quoted
from redrive.desk.look.views import place_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.stores.contract import Group, Store, Tally


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


def evidence(group: Group, sums: Sums) -> Evidence:
    """Return what is known of *group*."""
    return Evidence(
        fingerprint=group.fingerprint,
        kinds=group.kinds,
        categories=group.categories,
        this_way=max(group.count, sums.by_group[group.fingerprint]),
        failed=sums.of(Status.FAILED, group.kinds),
        delivered=sums.of(Status.DELIVERED, group.kinds),
    )


def _view(group: Group, sums: Sums, place: str) -> GroupView:
    verdict, explanation = judge(evidence(group, sums))
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
