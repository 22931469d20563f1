"""
Which moves are legal.

Owns the table of the state machine and the picture printed from it.
Knows nothing of why a letter moves: `decide` chooses, stores carry out.
"""

from __future__ import annotations

import msgspec

from redrive.core.letter import Failure, Status
from redrive.errors import EditConflict, MoveRefused

MOVES: dict[tuple[Status, Status], str] = {
    (Status.PENDING, Status.IN_FLIGHT): "claim",
    (Status.IN_FLIGHT, Status.DELIVERED): "succeed",
    (Status.IN_FLIGHT, Status.PENDING): "retry / given back",
    (Status.IN_FLIGHT, Status.FAILED): "give up",
    (Status.FAILED, Status.PENDING): "replay",
    (Status.FAILED, Status.ARCHIVED): "archive",
    (Status.PENDING, Status.ARCHIVED): "cancel",
    (Status.ARCHIVED, Status.FAILED): "restore",
    (Status.ARCHIVED, Status.PENDING): "restore (a cancelled one)",
}


class Move(msgspec.Struct, frozen=True, gc=False):
    """Where a letter goes and why. Waits are spans; the store adds its own clock."""

    to: Status
    why: str  # a `Why`, or what one says with a name in it
    delay: float = 0.0
    counts: bool = True  # False gives the attempt back
    loss: bool = False  # True adds one loss
    failure: Failure | None = None
    draw: float = 0.0
    policy: str = ""
    age: float = 0.0  # seconds that the cycle had lasted when this was decided


VERBS: dict[str, Status] = {  # operator's verb: the status it starts from
    "replay": Status.FAILED,
    "archive": Status.FAILED,
    "cancel": Status.PENDING,
    "restore": Status.ARCHIVED,
    "purge": Status.ARCHIVED,
}


def needed_for(verb: str) -> Status:
    """Return the status that *verb* starts from; raise MoveRefused if there is no such verb."""
    if verb not in VERBS:
        message = f"cannot {verb} letters: operators can {', '.join(VERBS)}"
        raise MoveRefused(message)
    return VERBS[verb]


def check_verb(verb: str, letter_id: str, status: Status) -> None:
    """Raise MoveRefused unless *verb* may be applied to a letter in *status*."""
    needed = needed_for(verb)
    if status is not needed:
        message = (
            f"cannot {verb} letter {letter_id!r}: it is {status}, and only a letter that is {needed} "
            f"can be {_PARTICIPLES[verb]}"
        )
        raise MoveRefused(message)


def check_purge(letter_id: str, waiting: str | None) -> None:
    """Raise MoveRefused if letter *waiting* waits for this one: it would wait in vain."""
    if waiting is not None:
        raise MoveRefused(
            f"cannot purge letter {letter_id!r}: letter {waiting!r} waits for it; archive that one first, or restore "
            "this one and let it be delivered"
        )


EDITABLE = (Status.PENDING, Status.FAILED, Status.ARCHIVED)


def check_edit(letter_id: str, status: Status, found: int, version: int) -> None:
    """Raise MoveRefused unless a letter in *status* may be edited; EditConflict unless *found* is its *version*."""
    if status not in EDITABLE:
        raise MoveRefused(
            f"cannot edit letter {letter_id!r}: it is {status}, and only a letter that is pending, failed "
            "or archived can be edited"
        )
    if found != version:
        raise EditConflict(
            f"cannot edit letter {letter_id!r}: it was read at version {version} and is now at version {found}; "
            "another edit came first, so read it again and edit what it holds now"
        )


_PARTICIPLES = {
    "replay": "replayed",
    "archive": "archived",
    "cancel": "cancelled",
    "restore": "restored",
    "purge": "purged (archive or cancel it first)",
}


def diagram() -> str:
    """Return the table as a Mermaid state diagram for the docs."""
    edges = (f"    {source} --> {target}: {word}" for (source, target), word in MOVES.items())
    ends = ("    archived --> [*]: purge", "    delivered --> [*]: retention")
    starts = ("    [*] --> pending: enqueue", "    [*] --> failed: collect")
    return "\n".join(("stateDiagram-v2", *starts, *edges, *ends))
