"""
The embedded store's face: the contract, one call thick over the file.

Owns which module carries out which operation, and whether it writes or reads. Every rule of what a call does lives in
the module named after it: putting, claiming, settling, failing, acting, shared_state, finding. Knows no thread
(`file.calls`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from redrive.core.letter.ids import spelled
from redrive.errors import PayloadError, SettingsError
from redrive.failpoints import hit
from redrive.stores.clock import SystemStoreClock
from redrive.stores.contract import Exchanged, Features
from redrive.stores.sqlite import claiming, ordering, putting, rows, settling, shared_state
from redrive.stores.sqlite.desk import acting, finding, lensing, planning
from redrive.stores.sqlite.desk.copying import SqliteCopies
from redrive.stores.sqlite.file.calls import FileCalls
from redrive.stores.sqlite.file.database import File
from redrive.stores.sqlite.file.living_workers import Living
from redrive.stores.sqlite.retention import retain
from redrive.stores.sqlite.texts import written_out
from redrive.stores.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from redrive.core.breaker import Breaker, BreakerRules
    from redrive.core.budget import BudgetRules
    from redrive.core.letter import Draft, Letter
    from redrive.core.moves import Move
    from redrive.core.plan import AuditEntry, Plan, PlanState, Step
    from redrive.core.query import Lens, Query
    from redrive.core.waiting import Standing
    from redrive.stores.clock import StoreClock
    from redrive.stores.contract import (
        Backlog,
        Claim,
        Group,
        Histories,
        LensGroup,
        Page,
        QueueSpec,
        QueueState,
        Receipt,
        Retention,
        Tally,
        Want,
        WorkerBeat,
    )
    from redrive.stores.sqlite.transaction import Transaction

LISTENING = 0.02  # seconds between two looks whether another process wrote


class SqliteStore:
    """Letters in one SQLite file; several processes may use it at once."""

    features = Features(durable=True, shared=True)

    def __init__(self, path: str | Path, *, clock: StoreClock | None = None, vfs: str | None = None) -> None:
        self.path = str(path)
        if self.path in ("", ":memory:"):  # each of our connections would have a database of its own
            raise SettingsError(
                [f"cannot keep letters in {self.path!r}: it is no file; memory:// keeps them in memory"]
            )
        self._clock = clock or SystemStoreClock()
        self._living = Living(self.path)
        self._claimer = claiming.Claimer()
        self._wakeup = Wakeup()
        self._calls = FileCalls(File(path, vfs=vfs), self._clock, self._wakeup.send)
        self._write, self._read = self._calls.write, self._calls.read

    # ------------------------------------------------------------------ opening and closing

    async def open(self) -> None:
        """Open the file, make or update its schema, start the writer."""
        if not self._calls.is_open:
            await asyncio.to_thread(self._calls.open)

    async def close(self) -> None:
        """Finish what was accepted, then close."""
        if await self._calls.close():
            self._living.let_go_of_all()

    # ------------------------------------------------------------------ letters in, work

    async def put(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Keep *drafts*, all or none; durable once it returns."""
        hit("put.before")
        try:
            receipts = await self._write(putting.put, drafts)
        except UnicodeEncodeError:
            raise PayloadError(
                "cannot keep these letters in a SQLite file: a key, kind or other name has a lone surrogate, which is "
                "no text; decode it as UTF-8 with errors='replace' first"
            ) from None
        hit("put.after")
        return receipts

    async def claim(self, wants: Sequence[Want], *, lease: float, worker: str) -> list[Claim]:
        """Claim due letters."""
        self._living.hold(worker)
        return _claims(await self._write(self._claimer.claim, wants, lease, worker))

    async def take(self, letter_id: str, *, lease: float, worker: str, waiting: bool = False) -> Claim | None:
        """Claim one pending letter now, due or not."""
        self._living.hold(worker)
        taken = await self._write(claiming.take_one, spelled(letter_id), lease, worker, waiting)
        return next(iter(_claims(taken)), None)

    async def stranded(self, limit: int, *, queue: str | None = None) -> list[str]:
        """Let letters go on whose `after` will not come; return those that are to fail."""
        if not await self._read(ordering.any_stranded, queue):
            return []
        found: list[str] = await self._write(ordering.stranded, limit, queue)
        return found

    async def settle(self, settlements: Sequence[tuple[Claim, Move]]) -> tuple[bool, ...]:
        """Carry out each move whose claim still holds."""
        hit("settle.before")
        accepted = await self._write(settling.settle, settlements)
        hit("settle.after")
        return accepted

    async def settle_counted(self, claim: Claim, move: Move, name: str, amounts: Mapping[str, int]) -> bool:
        """Carry out *move* and add *amounts* to the counters *name*, or neither."""
        hit("settle.before")
        accepted = await self._write(_settle_counted, claim, move, name, amounts)
        hit("settle.after")
        return accepted

    async def exchange(
        self, settlements: Sequence[tuple[Claim, Move]], wants: Sequence[Want], *, lease: float, worker: str
    ) -> Exchanged:
        """Settle and claim in one transaction."""
        hit("exchange.before")
        self._living.hold(worker)
        accepted, taken = await self._write(self._exchange, settlements, wants, lease, worker)
        hit("exchange.after")
        return Exchanged(accepted, _claims(taken))

    def _exchange(
        self,
        transaction: Transaction,
        settlements: Sequence[tuple[Claim, Move]],
        wants: Sequence[Want],
        lease: float,
        worker: str,
    ) -> tuple[tuple[bool, ...], list[rows.Taken]]:
        accepted = settling.settle(transaction, settlements) if settlements else ()
        hit("exchange.between")
        return accepted, self._claimer.claim(transaction, wants, lease, worker)

    async def extend(self, beat: WorkerBeat, claims: Sequence[Claim], *, lease: float) -> list[Claim]:
        """Record a sign of life and renew *claims*, ahead of everything that waits."""
        hit("extend.before")
        self._living.hold(beat.name)
        lost = await self._write(claiming.extend, beat, claims, lease, self._living, urgent=True)
        hit("extend.after")
        return lost

    async def expired(self, limit: int) -> list[Claim]:
        """Return claims whose lease ended, and those of workers that are known to be dead."""
        lease_now, now_us = self._calls.lease_now(), self._clock.wall_us()
        return await self._read(claiming.expired, lease_now, now_us, limit, self._living.is_dead)

    async def leave(self, worker: str) -> None:
        """Forget *worker*, which has ended; any worker may take what it still holds."""
        settled = await self._write(claiming.leave, worker)
        self._living.let_go(worker, remove=settled)

    async def backlog(self, wants: Sequence[Want]) -> Backlog:
        """Return what is left of these queues and kinds."""
        return await self._read(claiming.backlog, wants, self._clock.wall_us())

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the wait itself is the operation
        """Return early when letters may have become due through a put or an act of any process."""
        end = asyncio.get_running_loop().time() + timeout
        while (left := end - asyncio.get_running_loop().time()) > 0:
            if await self._wakeup.wait(min(LISTENING, left)) or self._calls.was_written():
                return True
        return False

    # ------------------------------------------------------------------ shared state

    async def declare(self, specs: Sequence[QueueSpec]) -> None:
        """Make the queues' settings known to all processes."""
        await self._write(shared_state.declare, specs)

    async def queues(self) -> list[QueueState]:
        """Return every queue that was declared or has letters."""
        return await self._read(shared_state.queues)

    async def pause(self, queue: str, *, paused: bool, by: str, reason: str) -> None:
        """Pause or resume *queue*."""
        await self._write(shared_state.pause, written_out(queue), paused, written_out(by), written_out(reason))

    async def workers(self) -> list[WorkerBeat]:
        """Return the workers seen lately."""
        return await self._read(shared_state.workers, self._calls.lease_now(), self._living.is_dead)

    async def breakers(self) -> dict[str, Breaker]:
        """Return every breaker."""
        return await self._read(shared_state.breakers, self._clock.wall_us() / 1e6)

    async def report(self, name: str, rules: BreakerRules, *, successes: int, failures: int) -> Breaker:
        """Add outcomes to a breaker."""
        return await self._write(shared_state.report, name, rules, successes, failures)

    async def probe(self, name: str, rules: BreakerRules, limit: int) -> int:
        """Return how many trial letters a breaker lets through."""
        return await self._write(shared_state.probe, name, rules, limit)

    async def spend(self, queue: str, rules: BudgetRules, *, firsts: int, retries: int) -> float:
        """Draw on a queue's retry budget."""
        return await self._write(shared_state.spend, queue, rules, firsts, retries)

    async def add_up(self, name: str, amounts: Mapping[str, int]) -> dict[str, int]:
        """Add *amounts* to the counters *name* and return all of them."""
        return await (
            self._write(shared_state.add_up, name, amounts) if amounts else self._read(shared_state.sums, name)
        )

    async def handled(self, handler: str, key: str) -> bool:
        """Note that *handler* handled *key*."""
        return await self._write(shared_state.handled, handler, key)

    # ------------------------------------------------------------------ the operator's side

    async def get(self, letter_id: str) -> Letter | None:
        """Return the letter, or None."""
        return await self._read(finding.get, spelled(letter_id))

    async def standing(self, letter_id: str) -> Standing | None:
        """Return what a pending letter waits for."""
        return await self._read(finding.standing, spelled(letter_id), self._clock.wall_us())

    async def dependents(self, letter_ids: Sequence[str]) -> list[tuple[str, str]]:
        """Return who waits for whom."""
        return await self._read(ordering.dependents, [spelled(each) for each in letter_ids])

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50, payloads: bool = True) -> Page:
        """Return a page, newest first."""
        return await self._read(finding.find, query, cursor, limit, self._clock.wall_us(), payloads)

    async def count(self, query: Query, *, at_most: int = 10_000) -> int:
        """Count matching letters, but not beyond *at_most*."""
        return await self._read(finding.count, query, at_most, self._clock.wall_us())

    async def groups(self, query: Query, *, limit: int = 50) -> list[Group]:
        """Group the failed letters that match."""
        return await self._read(finding.groups, query, limit, self._clock.wall_us())

    async def groups_by(self, lens: Lens, query: Query, *, limit: int = 50) -> list[LensGroup]:
        """Group the failed letters that match by what they have under *lens*."""
        return await self._read(lensing.groups_by, lens, query, limit, self._clock.wall_us())

    async def tallies(self, status: str | None = None) -> list[Tally]:
        """Return the maintained counts."""
        return await self._read(finding.tallies, status)

    async def oldest_failed(self) -> Letter | None:
        """Return the dead letter that has waited longest."""
        return await self._read(finding.oldest_failed)

    async def histories(self) -> Histories:
        """Return how often letters were replayed."""
        return await self._read(finding.histories)

    async def act(
        self,
        verb: str,
        letter_ids: Sequence[str],
        *,
        by: str,
        reason: str,
        generation: int | None = None,
        adds: tuple[str, Mapping[str, int]] | None = None,
    ) -> list[Letter]:
        """Act on these letters, all or none."""
        ids = [spelled(each) for each in letter_ids]
        acted = await self._write(_act_counted, adds, verb, ids, written_out(by), written_out(reason), generation)
        hit("act.after")
        return acted

    async def start_plan(self, plan: Plan) -> Plan:
        """Keep *plan*; its cut-off is now."""
        told = {"by": written_out(plan.by), "reason": written_out(plan.reason)}
        return await self._write(planning.start_plan, replace(plan, **told))

    async def step(self, plan_id: str, *, limit: int, worker: str = "", lease: float = 0.0) -> Step:
        """Act on the next page of a plan."""
        hit("step.before")
        done = await self._write(planning.step, plan_id, limit, worker, lease)
        hit("step.after")
        return done

    async def plan(self, plan_id: str) -> Plan:
        """Return a plan."""
        return await self._read(lambda connection: planning.read_plan(connection, plan_id, self._calls.lease_now()))

    async def plans(self, state: PlanState | None = None, *, limit: int = 100) -> list[Plan]:
        """Return plans, newest first."""
        return await self._read(
            lambda connection: planning.read_plans(connection, state, limit, self._calls.lease_now())
        )

    async def change_plan(self, plan_id: str, verb: str, *, by: str, reason: str, rate: float | None = None) -> Plan:
        """Pause, resume or halt a plan."""
        told = written_out(by), written_out(reason)
        return await self._write(planning.change_plan, plan_id, verb, *told, rate)

    async def edit(
        self, letter_id: str, payload: bytes, content_type: str, *, version: int, by: str, reason: str
    ) -> Letter:
        """Replace a payload, compare-and-set on its version."""
        told = (written_out(by), written_out(reason))
        return await self._write(acting.edit, spelled(letter_id), (payload, content_type), version, *told)

    async def record(self, by: str, verb: str, target: str, count: int, reason: str) -> None:
        """Write an audit entry for an act on what is not in this store."""
        await self._write(shared_state.write_down, by, verb, target, count, reason)

    async def audit(self, *, limit: int = 100) -> list[AuditEntry]:
        """Return the newest audit entries."""
        return await self._read(shared_state.audit, limit)

    async def retain(self, retention: Retention, *, limit: int = 5_000) -> int:
        """Remove some letters past their retention."""
        return await self._write(retain, retention, limit, self._living)

    @property
    def copies(self) -> SqliteCopies:
        """The way to copy letters to other stores, and from them."""
        return SqliteCopies(self._read, self._write)


def _claims(taken: Sequence[rows.Taken]) -> list[Claim]:
    return [claim for some in taken for claim in rows.claims_of(some)]


def _act_counted(transaction: Transaction, adds: tuple[str, Mapping[str, int]] | None, *asked: Any) -> list[Letter]:
    letters = acting.act(transaction, *asked)
    hit("act.before_count")
    if adds is not None:
        shared_state.add_up(transaction, *adds)
    return letters


def _settle_counted(transaction: Transaction, claim: Claim, move: Move, name: str, amounts: Mapping[str, int]) -> bool:
    [accepted] = settling.settle(transaction, [(claim, move)])
    if accepted:
        shared_state.add_up(transaction, name, amounts)
    return accepted
