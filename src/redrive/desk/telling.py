"""
Which fact an act of an operator is.

Owns the table from verbs to facts; a fact is announced after the store said yes. Knows no exporter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.core.facts import Archived, Purged, Replayed, Restored

if TYPE_CHECKING:
    from redrive.core.facts import Fact

_FACTS: dict[str, type[Archived | Purged | Replayed | Restored]] = {
    "replay": Replayed,
    "archive": Archived,
    "cancel": Archived,
    "restore": Restored,
    "purge": Purged,
}


def fact_of(verb: str, count: int, *, by: str, reason: str, plan: str | None) -> Fact:
    """Return the fact that *count* letters were acted on."""
    return _FACTS[verb](count=count, by=by, reason=reason, plan=plan or "")
