"""
The way of a letter: claim, start, outcome, decide, settle.

Owns the order of these steps, and that two exchanges with the store overlap with the
handlers: the next letters are asked for before these are run. Knows no rule (`decide`),
no delay (`policy`), no SQL, and nothing of how a handler is run (the engines).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from redrive.core.decide import DELIVERED, SUCCEEDED, Failed, Interrupted, Lost, held_back, is_retry
from redrive.core.facts import Delivered, Died, StoreAway, StoreBack
from redrive.core.letter import Status
from redrive.core.why import Why
from redrive.engine.runners.tasks import begin
from redrive.engine.worker.deciding import Deciding
from redrive.engine.worker.facts import facts_of
from redrive.engine.worker.faults import NO_LETTERS, Faults
from redrive.errors import StoreUnavailable
from redrive.failpoints import hit
from redrive.stores.contract import Exchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from redrive.core.budget import BudgetRules
    from redrive.core.decide import Outcome
    from redrive.core.facts import Fact
    from redrive.core.moves import Move
    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.engine.runners.contract import Engine
    from redrive.engine.worker.breakers import Dependencies
    from redrive.engine.worker.capacity import Line, Lines
    from redrive.stores.contract import Claim, Store, Want

RELEASED = Interrupted(Why.GIVEN_BACK)
_PATIENCE = 2.0  # seconds for which a suspect may keep this process from claiming, while others still run
_PAUSED = Interrupted(Why.QUEUE_PAUSED)
_LATER = Interrupted(Why.WAITS_TO_RUN_ALONE, wait=30.0)
_SHUTDOWN = Interrupted(Why.SHUTDOWN)
_FAULT_REST = 5.0  # seconds for which a line whose letters cannot be read claims none
_RUN_AGAIN = 0.05  # seconds to rest after the store was unavailable


class _Asked(NamedTuple):
    """An exchange under way, what each line was promised by it, and which queues were paused meanwhile."""

    exchange: asyncio.Task[tuple[list[tuple[Claim, Move]], Exchanged]]
    wants: list[tuple[Line, Want]]
    paused: set[str]


class Processor:
    """Moves letters of one store through the handlers of one process."""

    def __init__(
        self,
        store: Store,
        handlers: Mapping[str, Handler],
        engines: Mapping[str, Engine],
        lines: Lines,
        dependencies: Dependencies,
        *,
        clock: Clock,
        announce: Callable[[Fact], None],
        worker: str,
        lease: float,
        release: str | None = None,
        budgets: Mapping[str, BudgetRules] = MappingProxyType({}),
    ) -> None:
        self._store, self._handlers, self._engines, self._lines = store, handlers, engines, lines
        self._dependencies, self._clock, self._announce = dependencies, clock, announce
        self._worker, self._lease, self._faults = worker, lease, Faults(worker, announce)
        self.deciding = Deciding(handlers, self._faults, clock, release=release)
        self._budgets = budgets  # of the queues that asked for one
        self._outcomes: list[tuple[Claim, Outcome]] = []  # not yet decided
        self._decided: list[tuple[Claim, Move]] = []  # the store was away when they were to be settled
        self._paused: set[str] = set()  # queues paused since the letters that came last were asked for
        self._owed: Counter[str] = Counter()  # retries that no budget has paid for yet, by queue
        self._asked: deque[_Asked] = deque()  # exchanges under way, the oldest first
        self._firsts: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)  # spent in handlers and not yet told, by kind
        self._suspect: Claim | None = None  # to run alone: its last worker died
        self._suspected_at = 0.0
        self._alone: Claim | None = None  # the suspect that runs
        self._careful = False
        self._away = False
        self.held: dict[int, Claim] = {}  # what this process may settle, by place
        self.stopping = False
        self.wake = asyncio.Event()

    # ------------------------------------------------------------------ one round

    async def tick(self) -> float:
        """Do one round and return how long to rest: 0 while there is more to do."""
        try:
            settled, exchanged = await self._answer_or_settle_each()
        except StoreUnavailable as error:
            self._store_is(away=str(error))
            return _RUN_AGAIN  # what was to be settled waits in self._decided
        self._store_is(away="")
        hit("processor.after_exchange")
        self._take(exchanged.claims)
        self._ask_ahead(exchanged)  # first of all: the store works while we tell, and while the handlers run
        self._tell(settled, exchanged)
        if self._asked:
            await asyncio.sleep(0)  # lets it reach the store where tasks do not start at once, and others have a turn
        hit("processor.before_start")
        self._start_ready()
        if self._unsettled and not self._lines.running and len(self._asked) == 1:
            self._ask()  # the handlers outran the store: let it go on without waiting for us
        hit("processor.after_start")
        await self._dependencies.report()
        return 0.0 if self._asked or self._unsettled or exchanged.claims else 1.0

    def _store_is(self, *, away: str) -> None:
        """Tell when the store goes away and when it is back; not of every try between."""
        if away and not self._away:
            self._announce(StoreAway(worker=self._worker, why=away))
        elif self._away and not away:
            self._announce(StoreBack(worker=self._worker))
        self._away = bool(away)

    @property
    def idle(self) -> bool:
        """Whether this process holds nothing, neither to run nor to settle."""
        return not (self.held or self._unsettled or self._asked)

    @property
    def _unsettled(self) -> bool:
        return bool(self._outcomes or self._decided)

    @property
    def _has_ready(self) -> bool:
        return any(line.ready for line in self._lines.all)

    def _ask_ahead(self, last: Exchanged) -> None:
        """Ask while letters are ready to run; not for nothing, nor again at once when the *last* claim found none."""
        if self._has_ready and not self._asked and (self._unsettled or (last.claims and self._wants())):
            self._ask()

    def _ask(self) -> None:
        """Begin an exchange: settle what is done, claim what is lacking."""
        wants = self._wants()
        for line, want in wants:
            line.asked += want.limit
        exchange = begin(self._exchange([want for _, want in wants]), asyncio.get_running_loop())
        self._asked.append(_Asked(exchange, wants, set()))

    async def _answer(self) -> tuple[list[tuple[Claim, Move]], Exchanged]:
        """Wait for the oldest exchange; if our caller is cancelled it goes on, and is answered the next time."""
        if not self._asked:
            self._ask()
        exchange, wants, paused = self._asked[0]
        if not exchange.done():
            await asyncio.wait((exchange,))  # a shield would drop what was claimed if both end in the same instant
        self._asked.popleft()
        for line, want in wants:
            line.asked -= want.limit
        self._paused = paused
        return exchange.result()

    async def _answer_or_settle_each(self) -> tuple[list[tuple[Claim, Move]], Exchanged]:
        """Return the answer; where a fault of ours stands in its way, settle one by one, and claim the next time."""
        try:
            return await self._answer()
        except NO_LETTERS:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours, at some letter
            if not self._decided:  # no settlement is to blame
                return [], Exchanged((), await self._claim_each(error))
        settlements, self._decided = self._decided, []
        self._owed.clear()  # to pay for them may be what failed
        settled: list[tuple[Claim, Move]] = []
        try:
            settled, accepted = await self._faults.settle_each(self._store, settlements)
        finally:
            self._decided = settlements[len(settled) :] + self._decided
        return settled, Exchanged(accepted, [])

    async def _claim_each(self, error: Exception) -> list[Claim]:
        """Claim line by line; one whose letters cannot be read rests, and keeps no other line from its letters."""
        if len(self._lines.all) == 1:
            raise error
        claim = partial(self._store.claim, lease=self._lease, worker=self._worker)
        claims, unread = await self._faults.claim_each(claim, [want for _, want in self._wants()])
        for want in unread:
            self._lines.by_kind[want.kinds[0]].rests_until = self._clock.monotonic() + _FAULT_REST
        return claims

    async def _exchange(self, wants: list[Want]) -> tuple[list[tuple[Claim, Move]], Exchanged]:
        settlements = self._decide_all()
        retries, self._owed = self._owed, Counter()
        firsts = Counter({queue: self._firsts.pop(queue, 0) for queue in retries})
        try:
            if retries:
                await self._pay_for(retries, firsts, settlements)
            return settlements, await self._store.exchange(settlements, wants, lease=self._lease, worker=self._worker)
        except BaseException:  # cancelled or refused: nothing may be forgotten, nor decided or paid for once more
            self._decided = settlements + self._decided
            self._owed.update(retries)
            self._firsts.update(firsts)
            raise

    # ------------------------------------------------------------------ claiming

    def lacking(self) -> list[Want]:
        """Return what this process would claim now; nothing if it holds all that it may."""
        return [want for _, want in self._wants()]

    def _wants(self) -> list[tuple[Line, Want]]:
        if self.stopping or self._suspect or self._alone:
            return []
        awake = (line for line in self._lines.all if not line.rests_until or self._clock.monotonic() > line.rests_until)
        wants = [(line, line.want(self._limit(line))) for line in awake]
        return [(line, want) for line, want in wants if want is not None]

    def _limit(self, line: Line) -> int | None:
        if line.breaker is not None and (limit := self._dependencies.limit(line.breaker)) is not None:
            return limit
        return 1 if self._careful else None

    def _take(self, claims: list[Claim]) -> None:
        for claim in claims:
            self.held[claim.ref] = claim
        self.deciding.claimed(claims)
        if self.stopping:  # asked for before we were told to stop
            self._release(claims, _SHUTDOWN)
            return
        if self._suspect or self._alone:  # asked for before we knew of it
            self._release(claims)
            return
        if self._paused:
            self._release((claim for claim in claims if claim.letter.queue in self._paused), _PAUSED)
            claims = [claim for claim in claims if claim.letter.queue not in self._paused]
        suspects = [claim for claim in claims if claim.losses and self._endangers(claim)]
        self._careful = bool(suspects) if claims else self._careful
        if suspects:
            self._suspect, self._suspected_at = suspects[0], self._clock.monotonic()
            self._release(claim for claim in claims if claim is not suspects[0])
            self._release_ready(RELEASED)
            self._lines.shrink()  # where there is one suspect there are more: hold few letters beside the next
            return
        for claim in claims:
            line = self._lines.by_kind[claim.letter.kind]
            if line.breaker is None or self._dependencies.admits(line.breaker):
                line.ready.append(claim)
            else:
                self._release([claim], self._held_by(line.breaker))

    def _endangers(self, claim: Claim) -> bool:
        """Whether a letter could take others of this process with it when it dies again."""
        return self._handlers[claim.letter.kind].engine != "process"

    # ------------------------------------------------------------------ running

    def _start_ready(self) -> None:
        if self._suspect is not None:
            self._start_suspect(self._suspect)
            return
        for line in self._lines.all:
            if line.breaker is not None and self._dependencies.is_open(line.breaker):
                self._hold_back(line, line.breaker)
        claimed = {id(line): len(line.ready) for line in self._lines.all}
        for line, claim in self._lines.startable():
            self._start(line, claim)
        for line in self._lines.all:
            line.adapt(claimed[id(line)])

    def _start(self, line: Line, claim: Claim) -> None:
        handler = self._handlers[claim.letter.kind]
        ticket = (line, claim, self._clock.monotonic())
        self._engines[handler.engine].start(handler, claim.letter, ticket, self._finished)

    def _finished(self, ticket: tuple[Line, Claim, float], outcome: Outcome) -> None:
        line, claim, began = ticket
        self._seconds[claim.letter.kind] += self._clock.monotonic() - began
        line.running -= 1
        line.lane.running -= 1
        if claim is self._alone:
            self._alone = None
        self._outcomes.append((claim, outcome))
        self.wake.set()

    def _start_suspect(self, claim: Claim) -> None:
        """Run a letter whose last worker died with nothing beside it, so that a death convicts only it."""
        if self._lines.running or self._unsettled or len(self.held) > 1:
            if self._clock.monotonic() - self._suspected_at > _PATIENCE:
                self._suspect = None
                self._release([claim], _LATER)
            return
        line = self._lines.by_kind[claim.letter.kind]
        line.running += 1
        line.lane.running += 1
        self._suspect, self._alone = None, claim
        self._start(line, claim)

    def _hold_back(self, line: Line, name: str) -> None:
        self._release(line.ready, self._held_by(name))
        line.ready.clear()

    def _held_by(self, name: str) -> Interrupted:
        return Interrupted(Why.HELD_BY_BREAKER.naming(repr(name)), wait=self._dependencies.rest(name))

    def _release(self, claims: Iterable[Claim], why: Interrupted = RELEASED) -> None:
        self._outcomes.extend((claim, why) for claim in claims)

    def _release_ready(self, why: Interrupted) -> None:
        for line in self._lines.all:
            self._release(line.ready, why)
            line.ready.clear()

    # ------------------------------------------------------------------ deciding and settling

    def _decide_all(self) -> list[tuple[Claim, Move]]:
        """Decide each outcome, once; return what is to be settled, with what the store was away for."""
        hit("processor.before_decide")
        outcomes, self._outcomes = self._outcomes, []
        moves = self.deciding.moves(outcomes)
        if self._budgets:
            self._count_firsts(outcomes)
            self._count_retries(moves)
        before, self._decided = self._decided, []
        return before + moves

    def _count_firsts(self, outcomes: list[tuple[Claim, Outcome]]) -> None:
        """Count first tries that came to something: they earn the retries."""
        tried = [claim.letter for claim, outcome in outcomes if outcome is SUCCEEDED or isinstance(outcome, Failed)]
        self._firsts.update(
            [letter.queue for letter in tried if letter.attempts == 1 and letter.queue in self._budgets]
        )

    def _count_retries(self, moves: list[tuple[Claim, Move]]) -> None:
        """Count what a budget must pay for; a queue without one owes nothing and asks the store nothing."""
        queues = [claim.letter.queue for claim, move in moves if move is not DELIVERED and is_retry(move)]
        self._owed.update([queue for queue in queues if queue in self._budgets])

    async def _pay_for(self, retries: Counter[str], firsts: Counter[str], moves: list[tuple[Claim, Move]]) -> None:
        """Draw on the queues' budgets, and strike out what is paid; where one is empty, its retries wait longer."""
        for queue in list(retries):
            hold = await self._store.spend(queue, self._budgets[queue], firsts=firsts[queue], retries=retries[queue])
            del retries[queue], firsts[queue]
            moves[:] = [
                (claim, held_back(move, hold) if claim.letter.queue == queue and is_retry(move) else move)
                for claim, move in moves
            ]

    def _tell(self, settled: list[tuple[Claim, Move]], exchanged: Exchanged) -> None:
        for claim, move in settled:
            self._let_go(claim)
            breaker = self._handlers[claim.letter.kind].breaker
            if breaker is not None:
                self._learn(breaker, move)
        routine = getattr(self._announce, "wants_routine", True)
        for fact in facts_of(settled, exchanged.accepted, routine=routine):
            self._announce(self._completed(fact))

    def _completed(self, fact: Fact) -> Fact:
        """Add what only the processor knows: the time spent in handlers, and their names."""
        if isinstance(fact, Delivered):
            return msgspec.structs.replace(fact, seconds=self._seconds.pop(fact.kind, 0.0))
        if isinstance(fact, Died) and not fact.handler and fact.kind in self._handlers:
            return msgspec.structs.replace(fact, handler=self._handlers[fact.kind].name)
        return fact

    def _learn(self, breaker: str, move: Move) -> None:
        """Note what a letter says of the dependency it needs; learned once, after it was settled."""
        if move.to is Status.DELIVERED:
            self._dependencies.learned(breaker, succeeded=True)
        elif move.failure is not None and not move.failure.terminal:
            # A letter that can never succeed says nothing about the dependency.
            self._dependencies.learned(breaker, succeeded=False)

    def _let_go(self, claim: Claim) -> None:
        """Hold *claim* no longer; a newer claim on the same letter stays held."""
        held = self.held.get(claim.ref)
        if held is claim or (held is not None and held.token == claim.token):
            del self.held[claim.ref]

    # ------------------------------------------------------------------ losing and stopping

    def lost(self, claims: list[Claim]) -> None:
        """Forget *claims*, which are no longer ours: do not begin them; what runs will not be accepted."""
        for claim in claims:
            self._let_go(claim)
            line = self._lines.by_kind[claim.letter.kind]
            if claim in line.ready:
                line.ready.remove(claim)
            if claim is self._suspect:
                self._suspect = None

    def pause(self, queues: Collection[str]) -> None:
        """Give back what has not begun of these *queues*, which are paused now; what comes later is not theirs."""
        for asked in self._asked:
            asked.paused.update(queues)
        for line in self._lines.all:
            if line.lane.name in queues:
                self._release(line.ready, _PAUSED)
                line.ready.clear()
        if self._suspect is not None and self._suspect.letter.queue in queues:
            self._release([self._suspect], _PAUSED)
            self._suspect = None
        for engine in self._engines.values():
            engine.recall(queues, _PAUSED)

    def stop(self) -> None:
        """Claim no more; give back what has not begun."""
        self.stopping = True
        self._release_ready(_SHUTDOWN)
        if self._suspect is not None:
            self._release([self._suspect], _SHUTDOWN)
            self._suspect = None
        self.wake.set()

    async def rescue(self, limit: int = 200) -> int:
        """Take back lost letters, as `decide` says; return how many, 0 if one could not be settled."""
        claims = await self._store.expired(limit)
        hit("rescue.before_settle")
        if not claims:
            return 0
        lost = self.deciding.moves([(claim, _lost(claim)) for claim in claims])
        try:
            accepted, settled = await self._store.settle(lost), len(lost)
        except NO_LETTERS:
            raise
        except Exception:  # noqa: BLE001 - a fault of ours, at one of them
            lost, accepted = await self._faults.settle_each(self._store, lost)
            settled = 0  # what could not be settled comes again: not in this sweep
        hit("rescue.after_settle")
        for fact in facts_of(lost, accepted):
            self._announce(fact)
        return settled


def _lost(claim: Claim) -> Lost:
    return Lost(Why.WORKER_DIED.naming(str(claim.letter.worker)))
