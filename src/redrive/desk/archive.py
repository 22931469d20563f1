"""
Put letters away, bring them back, and remove them for good.

Archive takes failed letters, cancel pending ones; restore undoes either; purge removes archived
letters and cannot be undone. Which status each verb starts from is said in `core/moves.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.desk.act import act

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.desk.act import Done
    from redrive.stores.contract import Store


async def archive(store: Store, ids: Sequence[str] = (), *, query: str = "", by: str, reason: str = "") -> Done:
    """Decide that failed letters, by id or by query, need no handling."""
    return await act(store, "archive", ids, query=query, by=by, reason=reason)


async def cancel(store: Store, ids: Sequence[str] = (), *, query: str = "", by: str, reason: str = "") -> Done:
    """Archive pending letters, by id or by query, before they run."""
    return await act(store, "cancel", ids, query=query, by=by, reason=reason)


async def restore(store: Store, ids: Sequence[str] = (), *, query: str = "", by: str, reason: str = "") -> Done:
    """Bring archived letters, by id or by query, back to where they were archived from."""
    return await act(store, "restore", ids, query=query, by=by, reason=reason)


async def purge(store: Store, ids: Sequence[str] = (), *, query: str = "", by: str, reason: str = "") -> Done:
    """Remove archived letters, by id or by query, for good; the books keep their number."""
    return await act(store, "purge", ids, query=query, by=by, reason=reason)
