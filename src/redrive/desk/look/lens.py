"""
Group failed letters by another lens than their fingerprint: by where they came from, their kind, their tenant.

Owns the view of such a group and the query that finds its letters. Gives no verdict: that is of one fingerprint.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from redrive.core.letter import instant
from redrive.core.query import Query, Term, parse
from redrive.core.query.lenses import lens_named, term_of

if TYPE_CHECKING:
    from redrive.core.query import Lens
    from redrive.stores.contract import LensGroup, Store

_FAILED = Term("status", "eq", ("failed",))


class LensView(msgspec.Struct, frozen=True, kw_only=True):
    """Failed letters that share a value under a lens."""

    value: str | None
    count: int
    fingerprints: int
    title: str
    first_seen_at: datetime
    last_seen_at: datetime
    query: str


class LensGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The groups under a lens, biggest first."""

    by: str
    groups: list[LensView]


async def groups_by(store: Store, lens: str, query_text: str = "", *, limit: int = 50) -> LensGroups:
    """Group the failed letters that match by what they have under *lens*; an empty query groups all of them."""
    by, query = lens_named(lens), parse(query_text)
    found = await store.groups_by(by, query, limit=limit)
    return LensGroups(by=by, groups=[_view(group, _finding(query, by, group.value)) for group in found])


def _finding(query: Query, lens: Lens, value: str | None) -> str:
    """Return the query for the letters of one group: what was asked for, and the group's value."""
    return " ".join(str(term) for term in dict.fromkeys((_FAILED, *query.terms, term_of(lens, value))))


def _view(group: LensGroup, query: str) -> LensView:
    return LensView(
        value=group.value,
        count=group.count,
        fingerprints=group.fingerprints,
        title=group.title,
        first_seen_at=instant(group.first_seen_us),
        last_seen_at=instant(group.last_seen_us),
        query=query,
    )
