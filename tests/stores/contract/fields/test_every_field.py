"""Letters that go the same way in two stores are the same letter in both: every field, after every step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.stores.conftest import open_store
from tests.stores.samples import KIND, OPERATOR, QUEUE, WANT, WORKER, draft, failure, letter_id, order_lane

from redrive.core.letter import Draft, Letter, Priority, Status
from redrive.core.moves import Move
from redrive.core.plan import Plan
from redrive.core.query import parse
from redrive.stores.clock import ManualClock
from redrive.stores.contract import Claim, Store, Want

if TYPE_CHECKING:
    from collections.abc import Iterator

LANE = Want("lane", (KIND,), 100)
RICH: dict[str, Any] = {
    "key": "customer-1", "idempotency_key": "k", "priority": Priority.LOW, "delay": 1.5, "policy": "never",
    "generation": 3, "origin": "billing", "handler": "h", "tenant": "t", "headers": (("a", b"\0\xff"),),
    "metadata": {"a": [1, 2.5, None, "é\0"]}, "content_type": "text/plain",
}  # fmt: skip
LONG = failure(
    "x" * 2_000, rule="a rule", retry_after=7.25, release="1.2", place="app:work:3", traceback="app.py, line 3\n"
)
SHORT = failure("y", fingerprint="f2", template="", error_type="OSError")


class Story:
    """Drives one store and notes everything that can be seen of its letters."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.seen: list[tuple[str, Any]] = []

    async def note(self, step: str, *letters: Letter | Claim) -> None:
        """Note what *step* returned, in any order, and then all that is kept."""
        returned = sorted(map(_fields, letters), key=lambda fields: str(fields["id"]))
        self.seen.append((f"{step}: returned", returned))
        page = await self.store.find(parse(""), limit=100)
        self.seen.append((f"{step}: found", [_fields(each) for each in page.letters]))
        groups = await self.store.groups(parse(""))
        self.seen.append((f"{step}: groups", [msgspec.structs.asdict(group) for group in groups]))

    async def put(self, *drafts: Draft) -> None:
        await self.store.put(drafts)
        await self.note("put")

    async def claim(self, want: Want = WANT) -> list[Claim]:
        claims = await self.store.claim([want], lease=60, worker=WORKER)
        await self.note("claim", *claims)
        return claims

    async def run(self, move: Move, want: Want = WANT) -> None:
        """Claim what is due, and let all of it come to *move* a while later."""
        claims = await self.claim(want)
        self.clock.advance(0.125)
        assert claims
        assert all(await self.store.settle([(each, move) for each in claims]))
        await self.note(move.why)
        self.clock.advance(3_600)

    async def act(self, verb: str, *names: str, **told: Any) -> None:
        self.clock.advance(1)
        letters = await self.store.act(verb, [letter_id(name) for name in names], **OPERATOR, **told)
        await self.note(verb, *letters)

    async def plan(self, verb: str, query: str) -> None:
        started = await self.store.start_plan(Plan(id=f"p-{verb}", verb=verb, query=query, **OPERATOR))
        step = await self.store.step(started.id, limit=10)
        await self.note(f"plan {verb}")
        self.seen.append((f"plan {verb}: step", (step.acted, step.skipped, step.plan.done)))


def _fields(each: Letter | Claim) -> dict[str, Any]:
    if isinstance(each, Claim):
        return {**_fields(each.letter), "age": each.age}
    fields = {name: getattr(each, name) for name in each.__struct_fields__}
    return {name: value for name, value in fields.items() if name != "token"}


def _retry(what=LONG, **told: Any) -> Move:
    return Move(
        Status.PENDING, "backing off", delay=1.25, failure=what, draw=0.5, policy="exponential", age=2.5, **told
    )


def _dead(what=LONG, **told: Any) -> Move:
    return Move(Status.FAILED, "exhausted", failure=what, policy="exponential", **told)


async def enqueued(story: Story) -> None:
    await story.put(draft("a"), draft("b", **RICH), draft("c", payload=b"x" * 10_000))
    await story.put(draft("d", idempotency_key="k"), draft("e", after=(letter_id("a"), letter_id("c"))))
    early = story.clock.wall_us() - 3_600_000_000
    await story.put(draft("f", accepted_us=early), draft("g", accepted_us=early, failure=SHORT))
    await story.claim()
    story.clock.advance(2)
    await story.claim()


async def delivered(story: Story) -> None:
    await story.put(draft("a"), draft("b", **RICH), draft("c", after=(letter_id("a"),)))
    await story.run(Move(Status.DELIVERED, "succeeded"))
    await story.run(Move(Status.DELIVERED, "succeeded"))


async def retried(story: Story) -> None:
    await story.put(draft("a"), draft("b", **{**RICH, "delay": 0.0}))
    for what in (LONG, SHORT, LONG):
        await story.run(_retry(what))
    await story.run(Move(Status.DELIVERED, "succeeded"))


async def released(story: Story) -> None:
    await story.put(draft("a"))
    await story.run(Move(Status.PENDING, "interrupted", counts=False))
    await story.run(Move(Status.PENDING, "breaker open", counts=False, delay=0.1, policy="constant"))
    await story.run(_retry(counts=False))
    await story.claim()


async def lost(story: Story) -> None:
    await story.put(draft("a"), draft("b", **{**RICH, "delay": 0.0}))
    await story.claim()
    story.clock.advance(100)
    claims = await story.store.expired(10)
    await story.note("expired", *claims)
    loss = Move(Status.PENDING, "worker lost", counts=False, loss=True, policy="exponential", age=1.0)
    assert all(await story.store.settle([(each, loss) for each in claims]))
    await story.note("lost")
    await story.run(_retry(SHORT, loss=True))
    await story.run(_dead(SHORT, loss=True))
    await story.act("replay", "a", "b")


async def died_and_replayed(story: Story) -> None:
    await story.put(draft("a"), draft("b", **{**RICH, "delay": 0.0}))
    await story.run(_retry())
    await story.run(_dead(SHORT))
    await story.act("replay", "a", "b", generation=7)
    await story.run(_dead(failure("")), Want(QUEUE, (KIND,), 100, 7))
    await story.plan("replay", "status:failed")
    await story.run(_dead(LONG), Want(QUEUE, (KIND,), 100, 7))


async def archived_and_restored(story: Story) -> None:
    await story.put(draft("a"), draft("b"))
    await story.run(_dead())
    await story.put(draft("c"), draft("d", after=(letter_id("c"),)))
    await story.act("archive", "b", "a")
    await story.act("cancel", "c", "d")
    await story.act("restore", "a", "d", "c")
    await story.act("purge", "b")
    await story.act("replay", "a")
    await story.plan("cancel", "kind:*")
    await story.plan("restore", "kind:*")
    await story.claim()


async def edited(story: Story) -> None:
    await story.put(draft("a"), draft("b", payload=b"x" * 10_000))
    for name, payload in (("a", b"y" * 10_000), ("b", b"{}")):
        story.clock.advance(1)
        letter = await story.store.edit(letter_id(name), payload, "text/plain", version=1, **OPERATOR)
        await story.note("edit", letter)
    await story.claim()


async def collected(story: Story) -> None:
    await story.put(
        draft("a", failure=LONG),
        draft("b", failure=SHORT, attempts=4, first_failed_us=1_000_000, failed_us=2_000_000, **RICH),
        draft("c", failure=SHORT, attempts=2, failed_us=3_000_000),
    )
    await story.act("archive", "a")
    await story.act("restore", "a")
    await story.act("replay", "a", "b", "c")
    story.clock.advance(2)
    await story.run(_dead())


async def many_tries_and_cycles(story: Story) -> None:
    await story.put(draft("a"))
    for number in range(52):
        [claim] = await story.store.claim([WANT], lease=60, worker=WORKER)
        await story.store.settle([(claim, _retry(LONG if number % 5 else SHORT))])
        story.clock.advance(10)
    await story.note("tried")
    for _ in range(22):
        [claim] = await story.store.claim([WANT], lease=60, worker=WORKER)
        await story.store.settle([(claim, _dead(SHORT))])
        await story.store.act("replay", [letter_id("a")], **OPERATOR)
    await story.note("replayed")


async def in_order(story: Story) -> None:
    await order_lane(story.store)
    for name in "abc":
        await story.put(draft(name, queue="lane", key="k"))
    await story.run(_retry(), LANE)
    await story.run(_dead(), LANE)
    await story.act("replay", "a")
    await story.act("cancel", "b")
    await story.act("restore", "b")
    await story.run(Move(Status.DELIVERED, "succeeded"), LANE)


STORIES = [
    enqueued, delivered, retried, released, lost, died_and_replayed, archived_and_restored, edited, collected,
    many_tries_and_cycles, in_order,
]  # fmt: skip


async def _told(name: str, story, folder) -> list[tuple[str, Any]]:
    clock = ManualClock()
    async with open_store(name, folder, clock) as store:
        told = Story(store, clock)
        await story(told)
        told.seen.append(("oldest failed", [_fields(one) for one in [await store.oldest_failed()] if one]))
        tallies = [msgspec.structs.astuple(tally) for tally in await store.tallies()]
        told.seen.append(("tallies", sorted(tallies)))
        audit = [(entry.at_us, entry.by, entry.verb, entry.target, entry.count) for entry in await store.audit()]
        told.seen.append(("audit", audit))
        return told.seen


def _differences(one: Any, other: Any) -> Iterator[str]:
    """Say which fields differ, for whoever reads a failed test."""
    if isinstance(one, list) and len(one) == len(other):
        for mine, theirs in zip(one, other, strict=True):
            yield from _differences(mine, theirs)
    elif isinstance(one, dict):
        yield from (f"{name}: {one[name]!r} != {other[name]!r}" for name in one if one[name] != other[name])
    elif one != other:
        yield f"{one!r} != {other!r}"


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
@pytest.mark.parametrize("story", STORIES, ids=[story.__name__ for story in STORIES])
async def test_a_letter_has_the_same_fields_after_every_step(name, story, tmp_path):
    in_memory = await _told("memory", story, tmp_path)
    here = await _told(name, story, tmp_path)
    assert [step for step, _ in here] == [step for step, _ in in_memory]
    for (step, one), (_, other) in zip(here, in_memory, strict=True):
        assert one == other, f"{step}: {list(_differences(one, other))}"
