"""
An event as its sender may see it.

Owns the words of the inbox for a letter's status, and which fields are shown: never payload, headers or error text.
Knows no store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.core.letter import Status

if TYPE_CHECKING:
    from redrive.core.letter import Letter

_WORDS = {Status.IN_FLIGHT: "processing", Status.DELIVERED: "completed"}
_UNDER_WAY = (Status.IN_FLIGHT, Status.DELIVERED)


def view_of(letter: Letter, source: str) -> dict[str, Any]:
    """Return what is shown of the letter of an event."""
    return {
        "id": letter.id,
        "idempotency_key": (letter.idempotency_key or "").removeprefix(f"{source}:"),
        "status": _WORDS.get(letter.status, str(letter.status)),
        "attempts": failures_of(letter),
        "created_at": letter.created_at,
        "updated_at": letter.updated_at,
    }


def failures_of(letter: Letter) -> int:
    """Return how many tries failed or were lost; the one that runs, or that succeeded, is none of them."""
    return letter.attempts + letter.losses - (letter.status in _UNDER_WAY and letter.attempts > 0)
