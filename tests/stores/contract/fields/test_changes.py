"""Every field of a letter, after every move and act, on every store, is what `core.changes` says."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.stores.samples import KIND, OPERATOR, QUEUE, WORKER, claim, draft, failure, get, letter_id

from redrive.core import changes
from redrive.core.letter import Draft, Letter, Priority, Status
from redrive.core.moves import Move
from redrive.core.plan import Plan
from redrive.errors import NotSupported
from redrive.stores.contract import Want

RICH: dict[str, Any] = {
    "key": "customer-1", "idempotency_key": "k", "priority": Priority.LOW, "policy": "never", "generation": 3,
    "origin": "billing", "handler": "h", "tenant": "t", "headers": (("a", b"\0\xff"), ("a", b"")),
    "metadata": {"a": [1, 2.5, None, "é\0"]}, "content_type": "text/plain", "payload": b"x" * 10_000,
}  # fmt: skip
LONG = failure(
    "x" * 2_000, rule="a rule", retry_after=7.25, release="1.2", place="app:work:3", traceback="app.py, line 3\n"
)
SHORT = failure("y", fingerprint="f2", template="", error_type="OSError")
BOTH = pytest.mark.parametrize("fields", [{}, RICH], ids=["plain", "rich"])
MOVES = {
    "succeeded": Move(Status.DELIVERED, "succeeded"),
    "retry": Move(Status.PENDING, "backing off", delay=1.25, failure=LONG, draw=0.5, policy="exponential", age=2.5),
    "retry without a policy": Move(Status.PENDING, "backing off", failure=SHORT),
    "retry that gives the attempt back": Move(Status.PENDING, "backing off", failure=SHORT, counts=False),
    "interrupted": Move(Status.PENDING, "interrupted", counts=False),
    "held by a breaker": Move(Status.PENDING, "breaker open", counts=False, delay=30.0, policy="constant"),
    "lost": Move(Status.PENDING, "worker lost", counts=False, loss=True, policy="exponential"),
    "lost without a policy": Move(Status.PENDING, "worker lost", counts=False, loss=True),
    "given up": Move(Status.FAILED, "exhausted", failure=LONG, policy="exponential", draw=0.25, age=9.5),
    "given up without a policy": Move(Status.FAILED, "terminal", failure=SHORT),
    "crashed": Move(Status.FAILED, "worker_crashed", failure=SHORT, counts=False, loss=True, policy="exponential"),
}
DRAFTS = {
    "plain": draft(),
    "rich": draft(**RICH, delay=1.5),
    "due at an instant": draft(due_us=1_700_000_000_000_000),
    "dead": draft(failure=LONG),
    "dead for long": draft(failure=SHORT, attempts=4, first_failed_us=1_000_000, failed_us=2_000_000, **RICH),
    "dead, with its last failure": draft(failure=SHORT, attempts=2, failed_us=3_000_000, delay=5.0),
}
RETRIES = {
    "once": draft(failure=LONG, retry=True),
    "later": draft(failure=SHORT, retry=True, delay=30.0, **RICH),
    "at an instant": draft(failure=SHORT, retry=True, due_us=1_900_000_000_000_000, attempts=3),
    "since long": draft(failure=SHORT, retry=True, attempts=4, first_failed_us=1_000_000, failed_us=2_000_000, **RICH),
}


def same(found: Letter, expected: Letter) -> None:
    """Compare all fields but the token, which is the store's own."""
    assert found == replace(expected, token=found.token)


async def begun(store, fields: dict[str, Any], *moves: str) -> Letter:
    """Bring a letter through *moves*, each after a claim, and return it."""
    await store.put([draft(**fields)])
    for name in moves:
        [held] = await store.claim([Want(QUEUE, (KIND,), 1, 3)], lease=60, worker=WORKER)
        assert await store.settle([(held, replace(MOVES[name], delay=0.0))]) == (True,)
    return await get(store, "a")


@pytest.mark.parametrize("name", DRAFTS)
async def test_accepted(store, clock, name):
    given: Draft = DRAFTS[name]
    await store.put([given])
    same(await get(store, "a"), changes.accepted(given, clock.wall_us()))


@pytest.mark.parametrize("name", RETRIES)
async def test_accepted_to_be_retried(store, clock, name):
    if not store.features.retries:
        with pytest.raises(NotSupported, match="put it without its failure, or as a dead letter and replay it"):
            await store.put([RETRIES[name]])
        return
    await store.put([RETRIES[name]])
    same(await get(store, "a"), changes.accepted(RETRIES[name], clock.wall_us()))


@BOTH
async def test_claimed(store, clock, fields):
    before = await begun(store, fields, "retry")
    clock.advance(2)
    [held] = await store.claim([Want(QUEUE, (KIND,), 1, 3)], lease=60, worker="worker-2")
    expected = changes.claimed(before, "worker-2", clock.wall_us())
    same(held.letter, expected)
    same(await get(store, "a"), expected)
    assert held.token == (await get(store, "a")).token > before.token


@pytest.mark.parametrize("earlier", [(), ("retry",), ("lost", "retry without a policy")], ids=["first", "2nd", "3rd"])
@pytest.mark.parametrize("name", MOVES)
async def test_settled(store, clock, name, earlier):
    fields = RICH if earlier else {}
    await begun(store, fields, *earlier)
    [held] = await store.claim([Want(QUEUE, (KIND,), 1, 3)], lease=60, worker=WORKER)
    before = await get(store, "a")
    clock.advance(0.125)
    assert await store.settle([(held, MOVES[name])]) == (True,)
    same(await get(store, "a"), changes.settled(before, MOVES[name], clock.wall_us()))


@pytest.mark.parametrize("generation", [None, 7])
@pytest.mark.parametrize("planned", [False, True], ids=["by id", "by plan"])
@BOTH
async def test_replayed(store, clock, fields, planned, generation):
    before = await begun(store, fields, "retry", "lost", "given up")
    clock.advance(3)
    told = {"by": "ada", "reason": "fixed", "plan": "p" if planned else "", "generation": generation}
    expected = changes.replayed(before, clock.wall_us(), **told)
    await acted(store, "replay", expected, planned=planned, generation=generation)


@pytest.mark.parametrize("planned", [False, True], ids=["by id", "by plan"])
@BOTH
async def test_archived_and_restored(store, clock, fields, planned):
    told = {"by": "ada", "plan": "p" if planned else ""}
    before = await begun(store, fields, "retry", "given up")
    clock.advance(3)
    archived = changes.archived(before, clock.wall_us(), **told)
    await acted(store, "archive", archived, planned=planned)
    clock.advance(3)
    restored = changes.restored(archived, Status.FAILED, clock.wall_us(), **told)
    await acted(store, "restore", restored, planned=planned)


@pytest.mark.parametrize("planned", [False, True], ids=["by id", "by plan"])
@pytest.mark.parametrize("moves", [(), ("retry",)], ids=["fresh", "retried"])
async def test_cancelled_and_restored(store, clock, planned, moves):
    told = {"by": "ada", "plan": "p" if planned else ""}
    before = await begun(store, RICH, *moves)
    clock.advance(3)
    cancelled = changes.archived(before, clock.wall_us(), **told)
    await acted(store, "cancel", cancelled, planned=planned)
    clock.advance(3)
    restored = changes.restored(cancelled, Status.PENDING, clock.wall_us(), **told)
    await acted(store, "restore", restored, planned=planned)


async def acted(store, verb: str, expected: Letter, *, planned: bool, generation: int | None = None) -> None:
    """Let *verb* be done, and compare what it returns and what is kept."""
    if planned:
        await store.start_plan(Plan(id="p", verb=verb, query="kind:*", generation=generation, **OPERATOR))
        assert (await store.step("p", limit=5)).acted == (expected.id,)
    else:
        [returned] = await store.act(verb, [expected.id], generation=generation, **OPERATOR)
        same(returned, expected)
    same(await get(store, "a"), expected)


@pytest.mark.parametrize("moves", [(), ("retry",), ("given up",)], ids=["fresh", "retried", "dead"])
@pytest.mark.parametrize("payload", [b"{}", b"y" * 10_000], ids=["small", "large"])
@BOTH
async def test_edited(store, clock, fields, payload, moves):
    before = await begun(store, fields, *moves)
    clock.advance(3)
    returned = await store.edit(before.id, payload, "text/x", version=1, **OPERATOR)
    expected = changes.edited(before, payload, "text/x", clock.wall_us())
    same(returned, expected)
    same(await get(store, "a"), expected)


async def test_the_bounds_on_what_a_letter_keeps(store, clock):
    expected = await begun(store, {})
    told = {"by": "ada", "reason": "fixed", "plan": "", "generation": None}
    for n in range(changes.MAX_TRIES + 2):
        expected = await settled(store, clock, expected, "retry" if n % 5 else "retry without a policy")
    assert len(expected.tries) == changes.MAX_TRIES
    for _ in range(changes.MAX_CYCLES + 2):
        expected = await settled(store, clock, expected, "given up without a policy")
        expected = changes.replayed(expected, clock.wall_us(), **told)
        await store.act("replay", [letter_id("a")], **OPERATOR)
    assert (len(expected.failure_history), expected.cycles) == (changes.MAX_CYCLES, changes.MAX_CYCLES + 2)
    same(await get(store, "a"), expected)


async def settled(store, clock, before: Letter, name: str) -> Letter:
    """Claim the letter and let it come to a move; return what it should be then."""
    clock.advance(10)
    [held] = await claim(store)
    await store.settle([(held, MOVES[name])])
    now = clock.wall_us()
    return changes.settled(changes.claimed(before, WORKER, now), MOVES[name], now)
