"""
Read who did what.

Entries are written by the store in the transaction of the act itself; this file only reads them.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from redrive.core.letter import instant

if TYPE_CHECKING:
    from redrive.core.plan import AuditEntry
    from redrive.stores.contract import Store


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """One act: who, what, to which thing, to how many letters, when and why."""

    seq: int
    at: datetime
    by: str
    verb: str
    target: str
    count: int
    reason: str


class AuditLog(msgspec.Struct, frozen=True, kw_only=True):
    """The newest acts, newest first."""

    entries: list[AuditLine]


async def audit(store: Store, *, limit: int = 100) -> AuditLog:
    """Return the newest audit entries, newest first."""
    return AuditLog(entries=[_line(entry) for entry in await store.audit(limit=limit)])


def _line(entry: AuditEntry) -> AuditLine:
    return AuditLine(
        seq=entry.seq,
        at=instant(entry.at_us),
        by=entry.by,
        verb=entry.verb,
        target=entry.target,
        count=entry.count,
        reason=entry.reason,
    )
