"""A fault of redrive's own fails the letter that it is about, with the reason; neighbours and the worker go on."""

from __future__ import annotations

import pytest
from tests.app.conftest import driving_on

from redrive import Redrive, RetryPolicy, Status
from redrive.core.facts import Faulted
from redrive.stores.contract import Want
from redrive.stores.memory import MemoryStore
from redrive.stores.sqlite import SqliteStore
from redrive.testing import drive

UNWRITABLE = "\udc80"  # a lone surrogate: SQLite takes no such text
BOTH = [Want("default", ("bad", "good"), 10)]


class Undecidable(RetryPolicy):
    """A policy with a fault: it cannot say how long to wait."""

    def delay(self, attempt, draw):
        raise LookupError("a bug of ours")


class Unwritable(RetryPolicy):
    """A policy with a fault: its text cannot be written."""

    @classmethod
    def made(cls) -> RetryPolicy:
        policy = cls.constant(5)
        object.__setattr__(policy, "text", f"constant{UNWRITABLE}")
        return policy


@pytest.fixture
def sqlite(clock, folder):
    return driving_on(SqliteStore(folder / "redrive.db", clock=clock), clock)


async def fail(order: dict):
    raise OSError("down")


async def succeed(order: dict): ...


def faults(test) -> list[Faulted]:
    return [fact for fact in test.facts if isinstance(fact, Faulted)]


async def test_a_letter_that_cannot_be_decided_fails_with_the_reason_and_its_neighbours_are_settled(app, driven):
    app.add_handler("bad", fail, policy=Undecidable.constant(5))
    app.add_handler("good", succeed)
    app.add_handler("down", fail, policy=RetryPolicy.NEVER)
    async with driven(app) as test:
        for _ in range(3):
            for kind in ("good", "bad", "down"):
                await app.enqueue(kind, {})
        await test.run_until_idle()
        assert len(await test.letters("kind:good status:delivered")) == 3
        assert len(await test.letters("kind:down status:failed why:exhausted")) == 3
        dead = await test.letters("kind:bad status:failed")
        assert {letter.why for letter in dead} == {"redrive_fault"}
        assert len(dead) == 3
        assert "LookupError: a bug of ours" in dead[0].last_error
        told = faults(test)
    assert {fault.id for fault in told} == {letter.id for letter in dead}
    assert {fault.doing for fault in told} == {"decide what becomes of a letter"}
    assert "delay" in told[0].frames[-1]


async def test_an_outcome_that_cannot_be_written_fails_its_letter_and_its_neighbours_are_settled(app, sqlite):
    app.add_handler("bad", fail, policy=Unwritable.made())
    app.add_handler("good", succeed)
    async with sqlite(app) as test:
        for _ in range(3):
            for kind in ("good", "bad"):
                await app.enqueue(kind, {})
        await test.run_until_idle()
        assert len(await test.letters("kind:good status:delivered attempts:1")) == 3
        dead = await test.letters("kind:bad status:failed attempts:1")
        assert [letter.why for letter in dead] == ["redrive_fault"] * 3
        assert "UnicodeEncodeError" in dead[0].last_error
        assert {fault.id for fault in faults(test)} == {letter.id for letter in dead}


async def test_a_lost_letter_that_cannot_be_decided_fails_and_its_neighbours_are_rescued(app, driven, clock):
    untold = RetryPolicy.constant(5)
    object.__delattr__(untold, "text")
    app.add_handler("bad", succeed, policy=untold)
    app.add_handler("good", succeed)
    async with driven(app) as test:
        for kind in ("good", "bad", "good"):
            await app.enqueue(kind, {})
        assert len(await test.store.claim(BOTH, lease=10, worker="dead")) == 3
        clock.advance(11)
        await test.run_until_idle()
        assert len(await test.letters("kind:good status:delivered losses:1")) == 2
        [dead] = await test.letters("kind:bad")
    assert (dead.status, dead.why) == (Status.FAILED, "redrive_fault")
    assert "AttributeError" in dead.last_error


class Choosy(MemoryStore):
    """A store with a fault: of a bad letter it takes no move but one."""

    def __init__(self, clock, *, takes: Status | None = None):
        super().__init__(clock)
        self.takes = takes

    async def settle(self, settlements):
        self.check(settlements)
        return await super().settle(settlements)

    async def exchange(self, settlements, wants, **claiming):
        self.check(settlements)
        return await super().exchange(settlements, wants, **claiming)

    def check(self, settlements):
        if any(claim.letter.kind == "bad" and move.to is not self.takes for claim, move in settlements):
            raise LookupError("a bug of ours")


async def test_a_lost_letter_that_cannot_be_settled_fails_and_its_neighbours_are_rescued(app, clock):
    app.add_handler("bad", succeed)
    app.add_handler("good", succeed)
    async with drive(app, clock=clock, store=Choosy(clock, takes=Status.FAILED)) as test:
        for kind in ("good", "bad", "good"):
            await app.enqueue(kind, {})
        assert len(await test.store.claim(BOTH, lease=10, worker="dead")) == 3
        clock.advance(11)
        await test.run_until_idle()
        assert len(await test.letters("kind:good status:delivered losses:1")) == 2
        [dead] = await test.letters("kind:bad")
    assert (dead.status, dead.why) == (Status.FAILED, "redrive_fault")


async def test_a_letter_that_can_be_settled_in_no_way_keeps_nobody_from_going_on(app, clock):
    app.add_handler("bad", succeed)
    app.add_handler("good", succeed)
    async with drive(app, clock=clock, store=Choosy(clock)) as test:
        for kind in ("good", "bad", "good"):
            await app.enqueue(kind, {})
        await test.tick()
        assert len(await test.letters("kind:good status:delivered")) == 2
        assert len(await test.letters("kind:bad status:in_flight")) == 1
        clock.advance(3_600)
        await app.enqueue("good", {})
        await test.tick()  # with a sweep that meets the bad one again
        assert len(await test.letters("kind:good status:delivered")) == 3


async def test_an_error_whose_class_has_a_name_that_cannot_be_written_is_a_failure_like_any_other(app, driven):
    strange = type("Strange", (Exception,), {"__qualname__": f"Strange{UNWRITABLE}"})
    known = type("Known", (Exception,), {"__qualname__": f"Driver{UNWRITABLE}.IntegrityError"})

    @app.handler("bad", policy=RetryPolicy.immediate(max_attempts=2))
    async def raise_it(order: dict):
        raise strange("down")

    @app.handler("known", policy=RetryPolicy.immediate(max_attempts=2))
    async def raise_known(order: dict):
        raise known("broken")

    app.add_handler("good", succeed)
    async with driven(app) as test:
        for kind in ("good", "bad", "known", "good"):
            await app.enqueue(kind, {})
        await test.run_until_idle()
        assert len(await test.letters("kind:good status:delivered attempts:1")) == 2
        assert [letter.why for letter in await test.letters("kind:bad")] == ["exhausted"]
        assert [letter.why for letter in await test.letters("kind:known")] == ["terminal"]
        assert faults(test) == []


async def test_a_release_that_cannot_be_written_does_not_spoil_the_failures(driven):
    app = Redrive("memory://", release=f"v1{UNWRITABLE}")
    app.add_handler("bad", fail, policy=RetryPolicy.immediate(max_attempts=2))
    async with driven(app) as test:
        await app.enqueue("bad", {})
        await test.run_until_idle()
        [letter] = await test.letters("status:failed")
    assert (letter.why, letter.attempts, letter.release) == ("exhausted", 2, "v1\N{REPLACEMENT CHARACTER}")


class Unreadable(MemoryStore):
    """A store with a fault: it cannot read a bad letter."""

    async def claim(self, wants, **claiming):
        if any("bad" in want.kinds for want in wants):
            raise LookupError("a bug of ours")
        return await super().claim(wants, **claiming)

    async def exchange(self, settlements, wants, **claiming):
        if any("bad" in want.kinds for want in wants):
            raise LookupError("a bug of ours")
        return await super().exchange(settlements, wants, **claiming)


async def test_a_letter_that_cannot_be_read_holds_up_its_own_kind_alone(app, clock):
    app.add_handler("bad", succeed, concurrency=1)
    app.add_handler("good", succeed)
    async with drive(app, clock=clock, store=Unreadable(clock)) as test:
        for kind in ("good", "bad", "good"):
            await app.enqueue(kind, {})
        await test.tick()
        assert len(await test.letters("kind:good status:delivered")) == 2
        assert len(await test.letters("kind:bad status:pending attempts:0")) == 1
        assert [fault.doing for fault in faults(test)] == ["claim letters of bad"]
        clock.advance(6)
        await app.enqueue("good", {})
        await test.tick()
        assert len(await test.letters("kind:good status:delivered")) == 3
        assert len(faults(test)) == 2
