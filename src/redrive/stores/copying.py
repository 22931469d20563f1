"""
What it takes to move letters from one store to another.

Owns the seam: a letter as its store keeps it (`Kept`), read oldest first, and adopted as it is by another
store. An adopted letter is new there, so that the other store's books count it. Knows no store, and not who
copies what: `desk/act/copy.py` decides that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from redrive.core.letter import Letter, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.stores.contract import Store


class Seen(msgspec.Struct, frozen=True):
    """What a store remembers of a group of failures, beyond the letters in it."""

    fingerprint: str
    error_type: str
    title: str
    first_us: int
    last_us: int


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A letter, and what only its store knows of it."""

    letter: Letter
    archived_from: Status | None = None
    awaited: tuple[str, ...] = ()  # the letters of its `after` that it still waits for; "" is one that was removed
    group: Seen | None = None  # of a failed or archived letter


class Cargo(msgspec.Struct, frozen=True):
    """Some letters, oldest first, and where the next ones begin (None at the end)."""

    kept: list[Kept]
    cursor: str | None


class Adopted(msgspec.Struct, frozen=True):
    """What became of one letter that was to be adopted; neither kept nor a problem: it is new."""

    kept_id: str | None = None  # the letter that is kept already: by this id, or by the idempotency key
    updated_us: int = 0  # … and when that one last moved
    problem: str = ""  # why no letter like it can be kept here

    @property
    def is_new(self) -> bool:
        """Whether it was adopted now."""
        return self.kept_id is None and not self.problem


class Handled(msgspec.Struct, frozen=True, order=True):
    """That *handler* handled *key*, and when."""

    handler: str
    key: str
    at_us: int = 0


class Copies(Protocol):
    """The store as one that letters are copied from, and to."""

    async def read(self, cursor: str | None, limit: int) -> Cargo:
        """Return the next *limit* letters in the order of their arrival, payloads included."""

    async def adopt(self, letters: Sequence[Kept]) -> list[Adopted]:
        """
        Keep these letters as they are, in one transaction, and count them as enqueued; durable once it returns.

        A letter whose id is kept already, or whose idempotency key is (see `Store.put`), changes nothing. In an
        ordered queue they line up behind what is there, in their order. Limits of queues do not hold them back: they
        were accepted before. None of them may be in flight.
        """

    async def read_handled(self, after: Handled | None, limit: int) -> list[Handled]:
        """Return the next *limit* handled keys, by handler and key."""

    async def adopt_handled(self, handled: Sequence[Handled]) -> int:
        """Note handled keys with their times; return how many were new."""


class Copyable(Protocol):
    """A store whose letters can be copied."""

    @property
    def copies(self) -> Copies:
        """The way to copy them."""


def as_copyable(store: Store) -> Copyable | None:
    """Return *store* as one whose letters can be copied; None if they cannot."""
    return cast("Copyable", store) if store.features.copies else None


def group_of(letter: Letter) -> str | None:
    """Return the group that is remembered for *letter*, if any."""
    return letter.fingerprint if letter.status in (Status.FAILED, Status.ARCHIVED) else None
