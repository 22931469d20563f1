"""
Every store against the model, in any order of calls that chance can think of.

`REDRIVE_MACHINE_EXAMPLES=10000 pytest tests/stores/contract/work/test_machine.py` looks longer.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace
from tests.stores.conftest import make_store
from tests.stores.model import LIVE, NEEDS, Known, Model
from tests.stores.samples import DELIVERED, check_books, failure, find_all, letter_id

from redrive.core.decide import Failed, Interrupted, Lost, Outcome, Succeeded, decide
from redrive.core.letter import Draft, Priority
from redrive.core.plan import Plan
from redrive.core.policy import RetryPolicy
from redrive.errors import EditConflict, MoveRefused
from redrive.stores.clock import ManualClock
from redrive.stores.contract import Claim, QueueSpec, Retention, Want, WorkerBeat, books

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from redrive.core.moves import Move
    from redrive.stores.contract import Store

POLICY = RetryPolicy.exponential(first=1, cap=8, max_attempts=3, jitter="full")
# Shrinking a failure takes minutes; REDRIVE_MACHINE_SHRINK=0 shows it as it was found.
PHASES = [phase for phase in Phase if phase is not Phase.shrink or os.environ.get("REDRIVE_MACHINE_SHRINK") != "0"]
KEEP = Retention(delivered=40, archived=40)
LEASE = 10.0
ANY = st.integers(0, 10_000)  # which one: taken modulo how many there are
QUEUES = st.sampled_from(["work", "lane"])
VERBS = st.sampled_from([*NEEDS, "replay", "replay"])
OUTCOMES = st.sampled_from(
    [
        Succeeded(),
        Failed(failure()),
        Failed(failure(terminal=True, fingerprint="f2")),
        Failed(failure(retry_after=20.0)),
        Lost(),
        Interrupted(wait=2.0),
    ]
)


class Machine(RuleBasedStateMachine):
    """One store, one model, and everything that can be done to both."""

    store_name: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = TemporaryDirectory(prefix="redrive-machine-")
        self.clock = ManualClock()
        self.store = self.make()
        self.model = Model()
        self.claims: list[tuple[Claim, int]] = []  # every claim ever made, and its stamp in the model
        self.plans: dict[str, tuple[str, int, int]] = {}  # verb, cut-off, last place acted on
        self.tokens: dict[str, tuple[int, int]] = {}  # the last token seen, and the stamp it belongs to
        self.names = 0
        self.gone = False  # whether the store knows that the worker "w" is dead

    def make(self) -> Store:
        return make_store(self.store_name, Path(self.folder.name), self.clock)

    def run(self, call: Coroutine):
        return self.runner.run(call)

    def now(self) -> int:
        return self.clock.wall_us()

    def begin(self) -> int:
        """Begin a transaction in the model."""
        self.model.stamp += 1
        return self.now()

    @initialize()
    def open(self) -> None:
        self.run(self.store.open())
        self.run(self.store.declare([QueueSpec(name="lane", ordered=True), QueueSpec(name="work")]))

    # ------------------------------------------------------------------ letters in

    @rule(
        queue=QUEUES,
        key=st.sampled_from(["k1", "k1", "k1", "k2", None]),
        idempotency_key=st.sampled_from([None, None, None, "i1", "i2"]),
        delay=st.sampled_from([0, 0, 0, 5]),
        priority=st.sampled_from(Priority),
        waits_for=st.lists(ANY, max_size=2),
        dead=st.sampled_from([False, False, False, True]),
    )
    def put(self, queue, key, idempotency_key, delay, priority, waits_for, dead) -> None:
        self.names += 1
        known = list(self.model.letters)
        after = tuple(known[which % len(known)] for which in waits_for if known)
        self._put(
            Draft(
                id=letter_id(str(self.names)),
                queue=queue,
                kind="job",
                payload=b"%d" % self.names,
                key=key,
                idempotency_key=idempotency_key,
                delay=delay,
                priority=priority,
                after=after,
                failure=failure() if dead else None,
            )
        )

    @precondition(lambda self: self.model.letters)
    @rule(which=ANY)
    def put_again(self, which) -> None:
        self._put(self.pick(which).draft)

    def _put(self, draft: Draft) -> None:
        expected = self.model.kept_id(draft)
        now = self.begin()
        if any(other not in self.model.letters for other in draft.after):
            return  # what it waited for is purged: refused, and tested elsewhere
        [receipt] = self.run(self.store.put([draft]))
        assert (receipt.id, receipt.duplicate) == (expected or draft.id, expected is not None)
        if expected is None:
            self.model.put(draft, now)

    # ------------------------------------------------------------------ work

    @rule(queue=QUEUES, limit=st.integers(1, 5))
    def claim(self, queue, limit) -> None:
        now = self.begin()
        claims = self.run(self.store.claim([Want(queue, ("job",), limit)], lease=LEASE, worker="w"))
        self.gone = False
        self.check_claims(claims, queue, limit, now)

    def check_claims(self, claims: Sequence[Claim], queue: str, limit: int, now: int, worker: str = "w") -> None:
        """As many as there may be, none that may not run, and the oldest due of each priority."""
        runnable = self.model.runnable(queue, now)
        assert len(claims) == min(limit, len(runnable))
        taken = [self.model.letters[each.letter.id] for each in claims]
        for priority in Priority:
            line = [known for known in runnable if known.draft.priority is priority]
            got = [known for known in taken if known.draft.priority is priority]
            assert got == line[: len(got)]
        for each, known in zip(claims, taken, strict=True):
            self.model.claim(known, now, self.clock.lease_ms() + int(LEASE * 1_000), worker)
            assert (each.attempts, each.losses, each.letter.payload) == (known.attempts, known.losses, known.payload)
            assert each.letter == replace(known.letter, token=each.token)
            self.claims.append((each, self.model.stamp))

    @precondition(lambda self: self.claims)
    @rule(which=st.lists(ANY, min_size=1, max_size=4), outcome=OUTCOMES, draw=st.floats(0, 0.99))
    def settle(self, which, outcome, draw) -> None:
        now = self.begin()
        chosen = [self.claims[each % len(self.claims)] for each in which]
        settlements = [(claim, decide(claim, outcome, POLICY, draw, age=claim.age)) for claim, _ in chosen]
        accepted = self.run(self.store.settle(settlements))
        self.check_settled(chosen, settlements, accepted, now)

    def check_settled(self, chosen, settlements: list[tuple[Claim, Move]], accepted, now: int) -> None:
        assert len(accepted) == len(settlements)
        for (claim, stamp), (_, move), said in zip(chosen, settlements, accepted, strict=True):
            assert said == self.model.holds(claim.letter.id, stamp)
            if said:
                self.model.settle(self.model.letters[claim.letter.id], move, now)

    @precondition(lambda self: self.claims)
    @rule(which=ANY, outcome=OUTCOMES, queue=QUEUES, limit=st.integers(1, 5))
    def exchange(self, which, outcome, queue, limit) -> None:
        now = self.begin()
        chosen = [self.claims[which % len(self.claims)]]
        settlements = [(claim, decide(claim, outcome, POLICY, 0.0)) for claim, _ in chosen]
        wants = [Want(queue, ("job",), limit)]
        exchanged = self.run(self.store.exchange(settlements, wants, lease=LEASE, worker="w"))
        self.gone = False
        self.check_settled(chosen, settlements, exchanged.accepted, now)
        self.begin()
        self.check_claims(exchanged.claims, queue, limit, now)

    @precondition(lambda self: self.claims)
    @rule(which=st.lists(ANY, min_size=1, max_size=4, unique_by=lambda each: each % 7))
    def extend(self, which) -> None:
        chosen = {each % len(self.claims): self.claims[each % len(self.claims)] for each in which}.values()
        beat = WorkerBeat(name="w", kinds=("job",))
        self.gone = False
        lost = self.run(self.store.extend(beat, [claim for claim, _ in chosen], lease=LEASE))
        held = [claim for claim, stamp in chosen if self.model.holds(claim.letter.id, stamp)]
        assert Counter((each.ref, each.token) for each in lost) == Counter(
            (claim.ref, claim.token) for claim, _ in chosen if claim not in held
        )
        for claim in held:
            self.model.letters[claim.letter.id].lease_ms = self.clock.lease_ms() + int(LEASE * 1_000)

    @rule()
    def rescue(self) -> None:
        self._rescue(Lost())

    def _rescue(self, outcome: Outcome) -> None:
        now = self.begin()
        over = self.run(self.store.expired(100))
        flying = [known for known in self.model.letters.values() if known.status == "in_flight"]
        expected = {known.draft.id for known in flying if self.gone or known.lease_ms < self.clock.lease_ms()}
        assert {claim.letter.id for claim in over} == expected
        chosen = [(claim, self.model.letters[claim.letter.id].claim) for claim in over]
        settlements = [(claim, decide(claim, outcome, POLICY, 0.0)) for claim in over]
        self.check_settled(chosen, settlements, self.run(self.store.settle(settlements)), now)

    # ------------------------------------------------------------------ the operator's side

    def pick(self, which: int) -> Known:
        letters = list(self.model.letters.values())
        return letters[which % len(letters)]

    @precondition(lambda self: self.model.letters)
    @rule(verb=VERBS, which=ANY, fitting=st.sampled_from([True, True, True, False]))
    def act(self, verb, which, fitting) -> None:
        fit = [known for known in self.model.letters.values() if known.status == NEEDS[verb]]
        known = fit[which % len(fit)] if fitting and fit else self.pick(which)
        now = self.begin()
        call = self.store.act(verb, [known.draft.id], by="ada", reason="why not")
        if known.status != NEEDS[verb] or (verb == "purge" and self.model.awaited(known)):
            with pytest.raises(MoveRefused):
                self.run(call)
            return
        before = self.model.seen(known)
        [letter] = self.run(call)
        self.model.act(verb, known, now, "why not")
        expected = before if verb == "purge" else self.model.seen(known)
        assert letter == replace(expected, token=letter.token)

    @precondition(lambda self: self.model.letters)
    @rule(which=ANY, behind=st.integers(0, 1))
    def edit(self, which, behind) -> None:
        known = self.pick(which)
        now, payload = self.begin(), b"edited %d" % self.model.stamp
        version = known.version - behind
        call = self.store.edit(known.draft.id, payload, "text/plain", version=version, by="ada", reason="")
        if known.status in ("in_flight", "delivered") or behind:
            with pytest.raises((MoveRefused, EditConflict)):
                self.run(call)
            return
        letter = self.run(call)
        self.model.edit(known, payload, now)
        assert letter == replace(self.model.seen(known), token=letter.token)

    @precondition(lambda self: self.model.letters)
    @rule(which=ANY, first_page=st.integers(0, 2))
    def start_plan(self, which, first_page) -> None:
        """Plan a verb that fits some letter, and perhaps begin with it at once."""
        verbs = [verb for verb, needed in NEEDS.items() if needed == self.pick(which).status]
        verb, plan_id = (verbs or list(NEEDS))[0], f"plan-{len(self.plans)}"
        plan = Plan(id=plan_id, verb=verb, query="kind:job", by="ada", reason="all")
        self.run(self.store.start_plan(plan))
        self.plans[plan_id] = (verb, self.model.stamp, 0)
        if first_page:
            self._step(plan_id, first_page)

    @precondition(lambda self: self.plans)
    @rule(which=ANY, limit=st.integers(1, 4))
    def step_plan(self, which, limit) -> None:
        self._step(list(self.plans)[which % len(self.plans)], limit)

    def _step(self, plan_id: str, limit: int) -> None:
        verb, cutoff, place = self.plans[plan_id]
        page = self.model.planned(verb, cutoff, place)[:limit]
        expected = [known for known in page if verb != "purge" or not self.model.awaited(known)]
        now = self.begin()
        step = self.run(self.store.step(plan_id, limit=limit))
        assert (list(step.acted), step.skipped) == ([known.draft.id for known in expected], len(page) - len(expected))
        for known in expected:
            self.model.act(verb, known, now, "all", plan_id)
        if page:
            self.plans[plan_id] = (verb, cutoff, page[-1].place)

    @rule(queue=QUEUES)
    def pause_or_resume(self, queue) -> None:
        self.model.paused ^= {queue}
        self.run(self.store.pause(queue, paused=queue in self.model.paused, by="ada", reason=""))

    @rule()
    def retain(self) -> None:
        now = self.begin()
        resting = [known for known in self.model.letters.values() if known.status in ("delivered", "archived")]
        over = [known for known in resting if now - known.updated_us >= 40_000_000 and not self.model.awaited(known)]
        assert self.run(self.store.retain(KEEP)) == len(over)
        for known in over:
            self.model.remove(known)

    # ------------------------------------------------------------------ the world

    @rule(seconds=st.sampled_from([0.5, 3, 11, 30]))
    def time_passes(self, seconds) -> None:
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-60, 60]))
    def the_wall_clock_jumps(self, seconds) -> None:
        self.clock.jump(seconds)

    @rule()
    def close_and_reopen(self) -> None:
        self.run(self.store.close())
        if self.store.features.durable:
            self.store = self.make()
            self.gone = not self.store.features.hosts  # on one host the kernel knows that no worker holds its lock
        self.run(self.store.open())

    # ------------------------------------------------------------------ what must hold

    @invariant()
    def the_store_holds_what_the_model_says(self) -> None:
        letters = {letter.id: letter for letter in self.run(find_all(self.store))}
        assert letters.keys() == self.model.letters.keys()
        for letter_id_, letter in letters.items():
            known = self.model.letters[letter_id_]
            assert (letter.status, letter.attempts, letter.losses) == (known.status, known.attempts, known.losses)
            assert (letter.payload, letter.payload_version) == (known.payload, known.version)
            assert (letter.cycles, letter.due_us) == (known.cycles, known.due_us)
            assert (letter.worker is not None) == (known.status == "in_flight")
            assert letter == replace(self.model.seen(known), token=letter.token)
            self._token_grew(letter_id_, letter.token, known.stamp)
        flying = Counter(
            letter.key for letter in letters.values() if letter.status == "in_flight" and letter.queue == "lane"
        )
        assert all(count == 1 for key, count in flying.items() if key is not None)

    def _token_grew(self, letter_id_: str, token: int, stamp: int) -> None:
        old_token, old_stamp = self.tokens.get(letter_id_, (0, 0))
        assert (token > old_token) == (stamp > old_stamp)
        self.tokens[letter_id_] = (token, stamp)

    @invariant()
    def the_books_balance(self) -> None:
        self.run(check_books(self.store))
        kept = books(self.run(self.store.tallies()))
        assert (kept["enqueued"], kept["purged"]) == (self.model.enqueued, self.model.purged)

    def teardown(self) -> None:
        try:
            self.everything_can_be_brought_to_its_end()
        finally:
            self.run(self.store.close())
            self.runner.close()
            self.folder.cleanup()

    def everything_can_be_brought_to_its_end(self) -> None:
        """Replay and deliver all there is: only letters that wait for undelivered ones may be left."""
        for queue in list(self.model.paused):
            self.pause_or_resume(queue)
        for _ in range(len(self.model.letters) + 2):
            self.clock.advance(1_000)
            self._rescue(Interrupted())
            for known in [known for known in self.model.letters.values() if known.status == "failed"]:
                self.run(self.store.act("replay", [known.draft.id], by="ada", reason="the end"))
                self.model.act("replay", known, self.begin(), "the end")
            for queue in ("work", "lane"):
                self._deliver_all(queue)
        assert all(self.model.stuck(known) for known in self.model.letters.values() if known.status in LIVE)
        self.the_store_holds_what_the_model_says()

    def _deliver_all(self, queue: str) -> None:
        now = self.begin()
        made = len(self.claims)
        claims = self.run(self.store.claim([Want(queue, ("job",), 100)], lease=LEASE, worker="end"))
        self.check_claims(claims, queue, 100, now, "end")
        chosen, now = self.claims[made:], self.begin()
        settlements = [(claim, DELIVERED) for claim, _ in chosen]
        self.check_settled(chosen, settlements, self.run(self.store.settle(settlements)), now)


def machine_for(name: str, examples: int) -> type:
    """Return the test case that runs the machine over one store."""
    machine = type(f"{name.title()}Machine", (Machine,), {"store_name": name})
    machine.TestCase.settings = settings(
        max_examples=int(os.environ.get("REDRIVE_MACHINE_EXAMPLES", examples)),
        stateful_step_count=40,
        phases=PHASES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return machine.TestCase


TestMemory = machine_for("memory", 150)
TestSqlite = machine_for("sqlite", 40)
TestPostgres = machine_for("postgres", 15)
TestPostgres16 = machine_for("postgres16", 5)
