"""
An event as its sender may see it.

Owns the words of the inbox for a letter's status, and which fields are shown: never payload, headers or error text.
Knows no store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.core.letter import Status, instant

if TYPE_CHECKING:
    from datetime import datetime

    from redrive.core.letter import Letter

RECEIVED = "received"  # in the metadata of a letter: when its event was accepted, in seconds since the epoch
_WORDS = {Status.IN_FLIGHT: "processing", Status.DELIVERED: "completed"}
_UNDER_WAY = (Status.IN_FLIGHT, Status.DELIVERED)


def view_of(letter: Letter, source: str) -> dict[str, Any]:
    """Return what is shown of the letter of an event."""
    return {
        "id": letter.id,
        "idempotency_key": (letter.idempotency_key or "").removeprefix(f"{source}:"),
        "status": _WORDS.get(letter.status, str(letter.status)),
        "attempts": failures_of(letter),
        "created_at": _created_at(letter),
        "updated_at": letter.updated_at,
    }


def receipt_of(letter: Letter, source: str) -> dict[str, Any]:
    """Return what its sender is told when it is kept; how it fares is asked for later."""
    shown = view_of(letter, source)
    return {name: shown[name] for name in ("id", "idempotency_key", "status", "created_at")}


def accepted_at(received: float) -> datetime:
    """Return when the inbox accepted an event that it *received* then: seconds since the epoch, to a millisecond."""
    return instant(round(received * 1e3) * 1_000)


def _created_at(letter: Letter) -> datetime:
    """Return when the inbox accepted the event of *letter*; behind a spool, its store kept it later."""
    received = letter.metadata.get(RECEIVED)
    if not isinstance(received, int | float):  # a letter of an earlier release
        return letter.created_at
    return min(letter.created_at, accepted_at(received))


def failures_of(letter: Letter) -> int:
    """Return how many tries failed or were lost; the one that runs, or that succeeded, is none of them."""
    return letter.attempts + letter.losses - (letter.status in _UNDER_WAY and letter.attempts > 0)
