"""
The file of a spool: drafts that wait for their store.

Owns how a draft is kept. The file is an embedded store, so that it has the same durability and the same guards: a
letter of it is in the queue `spool`, has the name of the draft's own queue as its kind, and the draft as its payload.
A letter that is pending or in flight waits; a failed one was refused by the store. Knows no store behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from redrive.core.letter import Category, Draft, Failure, Status
from redrive.core.moves import Move
from redrive.core.query import parse
from redrive.core.why import Why
from redrive.errors import PayloadError, QueueFull, SpoolFull
from redrive.stores.clock import SystemStoreClock
from redrive.stores.contract import Claim, QueueSpec, Receipt, Retention, Want
from redrive.stores.spooling import Spooled
from redrive.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.letter import Letter
    from redrive.stores.clock import StoreClock

QUEUE = "spool"
MEDIA = "application/vnd.redrive.draft+msgpack"
BATCH = 100  # letters that are forwarded by one call
_FIRST = 1  # the due time of all: so the file gives them back in the order of their arrival, even if its clock jumps
_WORKER = "forwarder"
_HELD = 10_000  # more than any forwarder has in its hands
_WAITING = (Status.PENDING, Status.IN_FLIGHT)
_LEAVES = Move(Status.DELIVERED, Why.SUCCEEDED)
_GONE = Retention(delivered=0.0, archived=0.0, failed=None, handled=None)
_COUNTERS = "spool"
_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Draft).decode


def _place(claim: Claim) -> int:
    return cast("int", claim.ref)  # an embedded store numbers its letters in the order of their arrival


class Held(NamedTuple):
    """A draft that the forwarder has in its hands."""

    claim: Claim
    draft: Draft


class SpoolFile:
    """The drafts in one file; several processes may use it at once."""

    def __init__(self, path: str, *, limit: int, clock: StoreClock | None = None) -> None:
        self.path, self._limit = path, limit
        self._clock = clock or SystemStoreClock()
        self._store = SqliteStore(path, clock=clock)

    async def open(self) -> None:
        """Open the file, and make it if there is none."""
        await self._store.open()
        await self._store.declare([QueueSpec(name=QUEUE, max_size=self._limit)])

    async def close(self) -> None:
        """Close the file; what is in it stays."""
        await self._store.close()

    async def keep(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Keep *drafts*, all or none; durable once it returns. Raise SpoolFull if there is no room for them."""
        try:
            receipts = await self._store.put([self._wrapped(draft) for draft in drafts])
        except QueueFull:
            raise SpoolFull(self.path, self._limit) from None
        return [msgspec.structs.replace(receipt, spooled=True) for receipt in receipts]

    def _wrapped(self, draft: Draft) -> Draft:
        now = self._clock.wall_us()
        draft = replace(draft, accepted_us=now)
        if draft.delay and draft.due_us is None:  # the sender's span begins now, not when the store is back
            draft = replace(draft, delay=0.0, due_us=now + round(draft.delay * 1e6))
        try:
            payload = _encode(draft)
        except UnicodeEncodeError:
            raise PayloadError(
                f"cannot spool a letter of kind {draft.kind!r}: one of its texts has a lone surrogate, which a spool "
                "cannot hold, and the store is away; decode the text with errors='replace', or send it again later"
            ) from None
        told = {"kind": draft.kind} if draft.key is None else {"kind": draft.kind, "key": draft.key}
        return Draft(draft.id, QUEUE, draft.queue, payload, MEDIA, due_us=_FIRST, metadata=told)

    # ------------------------------------------------------------------ the forwarder's side

    async def queues(self) -> list[str]:
        """Return the queues of the drafts that wait."""
        tallies = await self._store.tallies()
        return sorted({each.kind for each in tallies if each.status in _WAITING and each.count > 0})

    async def held(self) -> dict[str, list[Held]]:
        """Return, by queue, what a forwarder had in its hands when it stopped; only for the one that has the lock."""
        found: dict[str, list[Held]] = {}
        for claim in sorted(await self._store.expired(_HELD), key=_place):
            letter = await self._store.get(claim.letter.id)
            if letter is not None and letter.status is Status.IN_FLIGHT:
                found.setdefault(letter.kind, []).append(Held(claim, _decode(letter.payload)))
        return found

    async def next(self, queue: str) -> list[Held]:
        """Return the next drafts of *queue* in the order of their arrival; they are in the forwarder's hands then."""
        # No lease: the lock says who forwards, and what a dead forwarder held is found at once.
        claims = await self._store.claim([Want(QUEUE, (queue,), BATCH)], lease=0.0, worker=_WORKER)
        return [Held(claim, _decode(claim.letter.payload)) for claim in sorted(claims, key=_place)]

    async def leave(self, held: Sequence[Held], receipts: Sequence[Receipt]) -> None:
        """Let go of drafts that are in their store by now, and count them."""
        # The same id: its store had it from this spool already, and only the answer was lost.
        pairs = zip(held, receipts, strict=True)
        others = sum(receipt.duplicate and receipt.id != each.draft.id for each, receipt in pairs)
        counted = {"forwarded": len(held) - others, "duplicates": others}
        # Counted first: after a crash in between, a count is too large by a batch at most, and never too small.
        await self._store.add_up(_COUNTERS, {name: n for name, n in counted.items() if n})
        await self._store.settle([(each.claim, _LEAVES) for each in held])
        await self._store.retain(_GONE)

    async def refuse(self, held: Held, error: Exception) -> None:
        """Keep a draft that its store refuses, where people see it."""
        failure = Failure(
            error_type=type(error).__name__,
            message=str(error),
            category=Category.VALIDATION,
            rule="the store refused it when it was forwarded",
            terminal=True,
            fingerprint=f"spool-{type(error).__name__}",
            template=type(error).__name__,
        )
        await self._store.settle([(held.claim, Move(Status.FAILED, Why.TERMINAL, failure=failure))])

    async def waits(self, letter_id: str) -> bool:
        """Say whether the draft *letter_id* still waits here."""
        letter = await self._store.get(letter_id)
        return letter is not None and letter.status in _WAITING

    # ------------------------------------------------------------------ the operator's side

    async def spooled(self) -> Spooled:
        """Return what the spool holds, and what became of what it held."""
        counts: dict[str, int] = {}
        for each in await self._store.tallies():
            counts[each.status] = counts.get(each.status, 0) + each.count
        sums = await self._store.add_up(_COUNTERS, {})
        return Spooled(
            waiting=sum(counts.get(status, 0) for status in _WAITING),
            refused=counts.get(Status.FAILED, 0),
            forwarded=sums.get("forwarded", 0),
            duplicates=sums.get("duplicates", 0),
            limit=self._limit,
        )

    async def letters(self, query: str, limit: int) -> list[Letter]:
        """Return some letters of the file, newest first, without their payloads."""
        page = await self._store.find(parse(query), limit=limit, payloads=False)
        return page.letters

    async def retry(self, letter_ids: Sequence[str], *, by: str, reason: str) -> None:
        """Let refused drafts be forwarded again; raise LetterNotFound or MoveRefused."""
        await self._store.act("replay", letter_ids, by=by, reason=reason)

    async def drop(self, letter_ids: Sequence[str], *, by: str, reason: str) -> None:
        """Give refused drafts up, on an operator's word; raise LetterNotFound or MoveRefused."""
        await self._store.act("archive", letter_ids, by=by, reason=reason)
