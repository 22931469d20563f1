"""
The store that forgets: letters in this process's memory.

Owns the contract's methods, one lock around each, so that several threads and event
loops may share one store. The other files of this folder do the work of its methods.
Knows no file and no network: what it holds dies with the process.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from redrive.core import breaker as breakers
from redrive.core import budget as budgets
from redrive.core.letter.ids import spelled
from redrive.errors import StoreClosed
from redrive.stores.clock import SystemStoreClock
from redrive.stores.contract import Exchanged, Features
from redrive.stores.memory import claiming, ordering, putting, settling
from redrive.stores.memory import retention as retaining
from redrive.stores.memory.desk import acting, finding, planning
from redrive.stores.memory.desk.acting import Act
from redrive.stores.memory.desk.copying import MemoryCopies
from redrive.stores.memory.transaction import Contents
from redrive.stores.promises import refuse_drafts, refuse_specs
from redrive.stores.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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


_log = logging.getLogger("redrive.stores.memory")
_NOT_DURABLE = (
    "the store memory:// keeps letters in the memory of this process: they are lost when it ends; "
    "use sqlite:///redrive.db or postgresql://… for letters that must survive"
)


class MemoryStore:
    """
    Keeps letters in memory, with every promise of a store but durability.

    For tests and demos: `features.durable` is False. Closing it keeps the letters, so a test may open it again.
    With *warns*, it logs once that it is not durable: an application got it by its URL, perhaps by mistake.
    """

    features = Features(durable=False, shared=False)

    def __init__(self, clock: StoreClock | None = None, *, warns: bool = False) -> None:
        self._warns = warns
        self._contents = Contents(clock or SystemStoreClock())
        self._lock = Lock()
        self._wakeup = Wakeup()
        self._closed = False

    async def open(self) -> None:
        """Make it ready, also after it was closed."""
        if self._warns:
            _log.warning(_NOT_DURABLE)
        self._closed = self._warns = False

    async def close(self) -> None:
        """Refuse everything from now on."""
        self._closed = True
        self._wakeup.send()

    @contextmanager
    def _locked(self, *, ring: bool = False) -> Iterator[Contents]:
        """Hold the contents alone; *ring* afterwards if letters may have become due through it."""
        with self._lock:
            if self._closed:
                raise StoreClosed("the memory store was closed; open it again before using it")
            yield self._contents
        if ring:
            self._wakeup.send()

    # ------------------------------------------------------------------ letters in

    async def put(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Keep *drafts*, all or none."""
        refuse_drafts(self.features, drafts)
        with self._locked(ring=True) as contents:
            return putting.put(contents, drafts)

    # ------------------------------------------------------------------ work

    async def claim(self, wants: Sequence[Want], *, lease: float, worker: str) -> list[Claim]:
        """Claim due letters, each for one caller only, oldest due first within a priority."""
        with self._locked() as contents:
            return claiming.claim(contents, wants, contents.next_token(), lease=lease, worker=worker)

    async def take(self, letter_id: str, *, lease: float, worker: str, waiting: bool = False) -> Claim | None:
        """Claim one pending letter now, due or not."""
        with self._locked() as contents:
            return claiming.take(contents, spelled(letter_id), waiting=waiting, lease=lease, worker=worker)

    async def stranded(self, limit: int, *, queue: str | None = None) -> list[str]:
        """Let letters go on whose `after` will not come; return those that are to fail."""
        with self._locked(ring=True) as contents:
            return ordering.stranded(contents.table, limit, queue)

    async def settle(self, settlements: Sequence[tuple[Claim, Move]]) -> tuple[bool, ...]:
        """Carry out each move; False where the claim is no longer held."""
        with self._locked(ring=True) as contents:
            return settling.settle(contents, settlements, contents.next_token())

    async def settle_counted(self, claim: Claim, move: Move, name: str, amounts: Mapping[str, int]) -> bool:
        """Carry out *move* and add *amounts* to the counters *name*, or neither."""
        with self._locked(ring=True) as contents:
            [accepted] = settling.settle(contents, [(claim, move)], contents.next_token())
            contents.counters[name].update(amounts if accepted else {})
            return accepted

    async def exchange(
        self, settlements: Sequence[tuple[Claim, Move]], wants: Sequence[Want], *, lease: float, worker: str
    ) -> Exchanged:
        """Settle and claim in one step."""
        with self._locked() as contents:
            token = contents.next_token()
            accepted = settling.settle(contents, settlements, token)
            return Exchanged(accepted, claiming.claim(contents, wants, token, lease=lease, worker=worker))

    async def extend(self, beat: WorkerBeat, claims: Sequence[Claim], *, lease: float) -> list[Claim]:
        """Record the worker's sign of life, renew *claims*, and return those no longer held."""
        with self._locked() as contents:
            return claiming.extend(contents, beat, claims, lease)

    async def expired(self, limit: int) -> list[Claim]:
        """Return claims whose lease ended, oldest first."""
        with self._locked() as contents:
            return claiming.expired(contents, limit)

    async def leave(self, worker: str) -> None:
        """Forget *worker*, which has ended."""
        with self._locked() as contents:
            contents.beats.pop(worker, None)

    async def backlog(self, wants: Sequence[Want]) -> Backlog:
        """Return what is left of these queues and kinds."""
        with self._locked() as contents:
            return claiming.backlog(contents, wants)

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the wait itself is the operation
        """Return early, with True, when letters may have become due through a put or an act of any caller."""
        with self._locked():
            pass
        return await self._wakeup.wait(timeout)

    # ------------------------------------------------------------------ shared state

    async def declare(self, specs: Sequence[QueueSpec]) -> None:
        """Make the queues' settings known; letters already there are lined up again."""
        refuse_specs(self.features, specs)
        with self._locked(ring=True) as contents:
            for spec in contents.queues.declare(specs, contents.now_ms / 1_000):
                ordering.order(contents.table, spec.name, ordered=spec.ordered)

    async def queues(self) -> list[QueueState]:
        """Return every queue that was declared or has letters, by name."""
        with self._locked() as contents:
            return contents.queues.states()

    async def pause(self, queue: str, *, paused: bool, by: str, reason: str) -> None:
        """Pause or resume *queue*, with an audit entry."""
        with self._locked(ring=True) as contents:
            contents.queues.made(queue).shut(paused=paused, by=by, reason=reason)
            contents.audit(by, "pause" if paused else "resume", queue, 1, reason)

    async def workers(self) -> list[WorkerBeat]:
        """Return the workers seen lately, by name."""
        with self._locked() as contents:
            return claiming.workers(contents)

    async def breakers(self) -> dict[str, Breaker]:
        """Return every breaker as it stands now."""
        with self._locked() as contents:
            now = contents.now_us / 1e6
            return {name: breakers.tell(breaker, rules, now) for name, (breaker, rules) in contents.breakers.items()}

    async def report(self, name: str, rules: BreakerRules, *, successes: int, failures: int) -> Breaker:
        """Add outcomes to the breaker *name* and return it."""
        with self._locked() as contents:
            before = contents.breaker(name)
            after = breakers.record(before, rules, successes, failures, contents.now_us / 1e6)
            contents.breakers[name] = (after, rules)
            return after

    async def probe(self, name: str, rules: BreakerRules, limit: int) -> int:
        """Return how many of *limit* trial letters the breaker *name* lets through now."""
        with self._locked() as contents:
            after, allowed = breakers.take_probes(contents.breaker(name), rules, limit, contents.now_us / 1e6)
            contents.breakers[name] = (after, rules)
            return allowed

    async def spend(self, queue: str, rules: BudgetRules, *, firsts: int, retries: int) -> float:
        """Add *firsts* to the retry budget of *queue*, take *retries*, return the least wait in seconds."""
        with self._locked() as contents:
            before, now = contents.budgets.get(queue), contents.now_us / 1e6
            contents.budgets[queue], wait = budgets.spend(before, rules, firsts, retries, now)
            return wait

    async def add_up(self, name: str, amounts: Mapping[str, int]) -> dict[str, int]:
        """Add *amounts* to the counters *name* and return all of them."""
        with self._locked() as contents:
            return contents.add_up(name, amounts)

    async def handled(self, handler: str, key: str) -> bool:
        """Note that *handler* handled *key*; False if that was noted before."""
        with self._locked() as contents:
            return contents.note_handled(handler, key)

    # ------------------------------------------------------------------ the operator's side

    async def get(self, letter_id: str) -> Letter | None:
        """Return the letter, or None."""
        with self._locked() as contents:
            row = contents.table.row(spelled(letter_id))
            return None if row is None else finding.seen(contents, row)

    async def standing(self, letter_id: str) -> Standing | None:
        """Return what a pending letter waits for."""
        with self._locked() as contents:
            return finding.standing(contents, spelled(letter_id))

    async def dependents(self, letter_ids: Sequence[str]) -> list[tuple[str, str]]:
        """Return who waits for whom."""
        with self._locked() as contents:
            ids = dict.fromkeys(map(spelled, letter_ids))
            return [(each, other) for each in ids for other in ordering.dependents(contents.table, each)]

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50, payloads: bool = True) -> Page:
        """Return a page of matching letters, newest first."""
        with self._locked() as contents:
            return finding.find(contents, query, cursor, limit, payloads=payloads)

    async def count(self, query: Query, *, at_most: int = 10_000) -> int:
        """Count matching letters, but not beyond *at_most*."""
        with self._locked() as contents:
            return finding.count(contents, query, at_most)

    async def groups(self, query: Query, *, limit: int = 50) -> list[Group]:
        """Group the failed letters that match, biggest group first."""
        with self._locked() as contents:
            return finding.groups(contents, query, limit)

    async def groups_by(self, lens: Lens, query: Query, *, limit: int = 50) -> list[LensGroup]:
        """Group the failed letters that match by what they have under *lens*, biggest group first."""
        with self._locked() as contents:
            return finding.groups_by(contents, lens, query, limit)

    async def tallies(self, status: str | None = None) -> list[Tally]:
        """Return the maintained counts, all from one snapshot."""
        with self._locked() as contents:
            return finding.tallies(contents, status)

    async def oldest_failed(self) -> Letter | None:
        """Return the dead letter that has waited longest."""
        with self._locked() as contents:
            return finding.oldest_failed(contents)

    async def histories(self) -> Histories:
        """Return how often letters were replayed."""
        with self._locked() as contents:
            return finding.histories(contents)

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
        """Replay, archive, cancel, restore or purge these letters, all or none, with an audit entry."""
        with self._locked(ring=True) as contents:
            asked = Act(verb=verb, by=by, reason=reason, generation=generation)
            letters = acting.act(contents, asked, [spelled(each) for each in letter_ids])
            if adds is not None:
                contents.add_up(*adds)
            return letters

    async def start_plan(self, plan: Plan) -> Plan:
        """Keep *plan*; its cut-off becomes this moment."""
        with self._locked() as contents:
            return planning.start_plan(contents, plan)

    async def step(self, plan_id: str, *, limit: int, worker: str = "", lease: float = 0.0) -> Step:
        """Act on the next *limit* letters of a plan."""
        with self._locked(ring=True) as contents:
            return planning.step(contents, plan_id, limit, worker, lease)

    async def plan(self, plan_id: str) -> Plan:
        """Return a plan; raise PlanNotFound."""
        with self._locked() as contents:
            return planning.plan_of(contents, plan_id)

    async def plans(self, state: PlanState | None = None, *, limit: int = 100) -> list[Plan]:
        """Return plans, newest first."""
        with self._locked() as contents:
            return planning.plans(contents, state, limit)

    async def change_plan(self, plan_id: str, verb: str, *, by: str, reason: str, rate: float | None = None) -> Plan:
        """Pause, resume or halt a plan."""
        with self._locked() as contents:
            return planning.change_plan(contents, plan_id, verb, by=by, reason=reason, rate=rate)

    async def edit(
        self, letter_id: str, payload: bytes, content_type: str, *, version: int, by: str, reason: str
    ) -> Letter:
        """Replace the payload of a pending, failed or archived letter if its payload_version is *version*."""
        with self._locked() as contents:
            letter_id = spelled(letter_id)
            return acting.edit(contents, letter_id, payload, content_type, version=version, by=by, reason=reason)

    async def record(self, by: str, verb: str, target: str, count: int, reason: str) -> None:
        """Write an audit entry for an act on what is not in this store."""
        with self._locked() as contents:
            contents.audit(by, verb, target, count, reason)

    async def audit(self, *, limit: int = 100) -> list[AuditEntry]:
        """Return the newest audit entries, newest first."""
        with self._locked() as contents:
            return contents.entries[::-1][:limit]

    async def retain(self, retention: Retention, *, limit: int = 5_000) -> int:
        """Look at some letters and remove those past their retention; return how many."""
        with self._locked() as contents:
            return retaining.retain(contents, retention, limit)

    @property
    def copies(self) -> MemoryCopies:
        """The way to copy letters to other stores, and from them."""
        return MemoryCopies(self._locked)
