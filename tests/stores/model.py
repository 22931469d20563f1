"""
What should be true: a small model of letters, written without looking at any store.

It knows the state machine, order per key, `after`, leases and plans, as plain lists and
sets. It has no indexes and no tokens: a stamp counts transactions. All fields of a letter
follow `core.changes`, as that was when the tests began: a build that is broken later differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.core.changes import accepted, archived, claimed, edited, replayed, restored, settled
from redrive.core.letter import Status

if TYPE_CHECKING:
    from redrive.core.letter import Draft, Letter
    from redrive.core.moves import Move

NEEDS = {"replay": "failed", "archive": "failed", "cancel": "pending", "restore": "archived", "purge": "archived"}
LIVE = ("pending", "in_flight")


@dataclass
class Known:
    """One letter, as far as the model cares."""

    draft: Draft
    place: int
    status: str
    due_us: int
    updated_us: int
    stamp: int
    payload: bytes
    waits_for: set[str]
    letter: Letter  # all its fields, but the token and for how many it waits
    attempts: int = 0
    losses: int = 0
    cycles: int = 0
    version: int = 1
    claim: int = 0  # the stamp of the claim that holds it
    lease_ms: int = 0
    archived_from: str = ""

    @property
    def lane(self) -> str | None:
        return self.draft.key if self.draft.queue == "lane" else None


@dataclass
class Model:
    """All letters, and what becomes of them."""

    letters: dict[str, Known] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)  # of a key: the letter whose turn it is
    paused: set[str] = field(default_factory=set)
    stamp: int = 0
    enqueued: int = 0
    purged: int = 0

    def kept_id(self, draft: Draft) -> str | None:
        """Return the id that makes *draft* a duplicate."""
        if draft.id in self.letters:
            return draft.id
        same = (
            known.draft.id
            for known in self.letters.values()
            if draft.idempotency_key is not None
            and (known.draft.queue, known.draft.kind) == (draft.queue, draft.kind)
            and known.draft.idempotency_key == draft.idempotency_key
        )
        return next(same, None)

    def put(self, draft: Draft, now: int) -> None:
        self.enqueued += 1
        waits_for = {other for other in draft.after if self.letters[other].status != "delivered"}
        known = Known(
            draft=draft,
            place=self.enqueued,
            status="pending" if draft.failure is None else "failed",
            due_us=now + round(draft.delay * 1e6),
            updated_us=now,
            stamp=self.stamp,
            payload=draft.payload,
            waits_for=waits_for,
            letter=accepted(draft, now),
        )
        self.letters[draft.id] = known
        self._take_write_lock(known)

    def runnable(self, queue: str, now: int) -> list[Known]:
        """Return what a claim may take, oldest due first."""
        found = [known for known in self.letters.values() if known.draft.queue == queue and self._may_run(known, now)]
        return sorted(found, key=lambda known: (known.due_us, known.place))

    def _may_run(self, known: Known, now: int) -> bool:
        return (
            known.status == "pending"
            and known.due_us <= now
            and known.draft.queue not in self.paused
            and not known.waits_for
            and (known.lane is None or self.heads.get(known.lane) == known.draft.id)
        )

    def claim(self, known: Known, now: int, lease_ms: int, worker: str) -> None:
        known.attempts += 1
        known.letter = claimed(known.letter, worker, now)
        known.claim, known.lease_ms = self.stamp, lease_ms
        self._to(known, "in_flight", now)

    def holds(self, letter_id: str, claim: int) -> bool:
        known = self.letters.get(letter_id)
        return known is not None and known.status == "in_flight" and known.claim == claim

    def settle(self, known: Known, move: Move, now: int) -> None:
        known.letter = settled(known.letter, move, now)
        known.attempts -= not move.counts
        known.losses += move.loss
        if move.to == "pending":
            known.due_us = now + round(move.delay * 1e6)
        self._to(known, str(move.to), now)

    def act(self, verb: str, known: Known, now: int, reason: str, plan: str = "") -> None:
        match verb:
            case "purge":
                self.remove(known)
                return
            case "replay":
                known.attempts = known.losses = 0
                known.cycles += 1
                known.due_us = now
                target = "pending"
                told = {"by": "ada", "reason": reason, "plan": plan, "generation": None}
                known.letter = replayed(known.letter, now, **told)
            case "restore":
                target = known.archived_from
                known.letter = restored(known.letter, Status(target), now, by="ada", plan=plan)
            case _:
                known.archived_from, target = known.status, "archived"
                known.letter = archived(known.letter, now, by="ada", plan=plan)
        self._to(known, target, now)
        self._line_up(known)

    def edit(self, known: Known, payload: bytes, now: int) -> None:
        known.letter = edited(known.letter, payload, "text/plain", now)
        known.payload, known.version = payload, known.version + 1
        self._to(known, known.status, now)

    def seen(self, known: Known) -> Letter:
        """Return the letter as a store shows it, without the token."""
        behind = known.lane is not None and self.heads.get(known.lane) != known.draft.id
        waits = len(known.waits_for) + behind if known.status == "pending" else 0
        return replace(known.letter, waits_for=waits)

    def remove(self, known: Known) -> None:
        del self.letters[known.draft.id]
        self.purged += 1

    def awaited(self, known: Known) -> bool:
        """Return whether a letter waits for it, or would after a replay, so that it must not be purged."""
        waiting = (other for other in self.letters.values() if other.status in ("pending", "failed"))
        return any(known.draft.id in other.waits_for for other in waiting)

    def planned(self, verb: str, cutoff: int, after: int) -> list[Known]:
        """Return the letters that a plan has still to act on, in its order."""
        fit = (known for known in self.letters.values() if known.status == NEEDS[verb] and known.stamp <= cutoff)
        return sorted((known for known in fit if known.place > after), key=lambda known: known.place)

    def stuck(self, known: Known) -> bool:
        """Return whether it waits, rightly, for a letter that will not be delivered."""
        lane = [other for other in self.letters.values() if other.lane is not None and other.lane == known.lane]
        return bool(known.waits_for) or any(other.waits_for for other in lane)

    def _to(self, known: Known, status: str, now: int) -> None:
        known.status, known.stamp, known.updated_us = status, self.stamp, now
        if status == "delivered":
            for other in self.letters.values():
                other.waits_for.discard(known.draft.id)
        if known.lane is not None and self.heads.get(known.lane) == known.draft.id and status not in LIVE:
            del self.heads[known.lane]
            self._next_head(known.lane)
        self._take_write_lock(known)

    def _line_up(self, known: Known) -> None:
        """A letter came back into its lane: the oldest goes first, unless one is under way."""
        if known.lane is not None and known.status == "pending" and self._head(known.lane).status == "pending":
            self._next_head(known.lane)

    def _head(self, lane: str) -> Known:
        return self.letters[self.heads[lane]]

    def _next_head(self, lane: str) -> None:
        waiting = [other for other in self.letters.values() if other.lane == lane and other.status in LIVE]
        if waiting:
            self.heads[lane] = min(waiting, key=lambda other: other.place).draft.id

    def _take_write_lock(self, known: Known) -> None:
        if known.lane is not None and known.status in LIVE:
            self.heads.setdefault(known.lane, known.draft.id)
