"""Letters copied from one store to another arrive as they are, and work goes on there."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.stores.samples import (
    DELIVERED,
    KIND,
    QUEUE,
    WANT,
    act,
    after,
    check_books,
    claim,
    draft,
    failure,
    find_all,
    get,
    give_up,
    letter_id,
    lost,
    names,
    order_lane,
    ordered,
    put,
    retry,
    settle_all,
    status,
)

from redrive.core.letter import Letter, Priority, Status
from redrive.core.plan import Plan
from redrive.core.query import parse
from redrive.desk.act.copy import copy
from redrive.errors import CopyRefused
from redrive.stores.contract import QueueSpec, Receipt, WorkerBeat, books
from redrive.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redrive.desk.act.copy import Copied
    from redrive.stores.contract import Store

NAMES = ("there", "here")
KEYS = ("order-17", "order-18\x00", "long" * 300)  # that were handled


@pytest.fixture
async def other(clock) -> AsyncIterator[Store]:
    memory = MemoryStore(clock)
    await memory.open()
    yield memory
    await check_books(memory)
    await memory.close()


async def copied(source: Store, target: Store) -> Copied:
    return await copy(source, target, by="ada", names=NAMES)


async def fill(store: Store, clock) -> None:
    """Bring letters into every status, with every field that a letter has."""
    await order_lane(store)
    await put(store, "delivered", "gone", "needed")
    await put(store, after("in vain", "gone"), after("waits", "needed"), after("waited", "delivered"))
    await act(store, "cancel", "gone", "needed", "in vain")
    await settle_all(store, DELIVERED)
    await act(store, "restore", "needed")
    await act(store, "purge", "gone")
    await act(store, "restore", "in vain")
    await settle_all(store, lost())
    await settle_all(store, retry(3_600.0, what=failure("busy", traceback="line 1\nline 2", place="shop:pay:17")))
    clock.advance(1.25)
    await put(store, draft("old", idempotency_key="order-17"), draft("put away"), draft("replayed"))
    await settle_all(store, give_up(failure("the 1st time", release="1.2", template="the <n> time")))
    clock.advance(7)
    await act(store, "archive", "put away")
    await act(store, "replay", "old", "replayed", generation=4)
    await settle_all(store, give_up(failure("again\x00", fingerprint="f2", error_type="E" * 700)))
    plan = await store.start_plan(Plan(verb="replay", query=f"id:{letter_id('replayed')}", by="ada", reason=""))
    while not plan.done:
        plan = (await store.step(plan.id, limit=10)).plan
    clock.advance(7)
    await put(
        store,
        draft(
            "rich",
            payload=b"\x00" * 10_000,
            content_type="text/plain",
            key="k" * 800,
            idempotency_key="\x1a odd",
            unique_in="queue",
            priority=Priority.HIGH,
            delay=1_800.0,
            policy="never",
            generation=3,
            origin="the shop",
            handler="mailer",
            tenant="t1",
            headers=(("trace", b"\xff\x00"),),
            metadata={"a": [1, None, {"b": "ü"}]},
        ),
        draft("cancelled", delay=60.0),
        *[ordered(f"o{n}") for n in range(4)],
        ordered("p0", "customer-2"),
    )
    await act(store, "cancel", "cancelled")
    await store.edit(
        letter_id("rich"), b'{"x": 1}' * 1_000, "application/json", version=1, by="ada", reason="it was nothing"
    )
    [first, _] = await claim(store, queue="lane")
    await store.settle([(first, retry(5.0))])
    for key in KEYS:
        await store.handled("mailer", key)


def plain(letter: Letter) -> dict[str, object]:
    """Return every field but those that only its store can know."""
    return {name: getattr(letter, name) for name in Letter.__struct_fields__ if name != "token"}


async def everything(store: Store) -> dict[str, dict[str, object]]:
    found = await find_all(store)
    return {letter.id: plain(letter) for letter in found}


async def in_order(store: Store) -> list[str]:
    return [letter.id for letter in await find_all(store)]


@pytest.fixture(params=["from", "to"])
async def ends(request, store: Store, other: Store, clock) -> tuple[Store, Store]:
    """A store with letters in every status, and an empty one."""
    source, target = (store, other) if request.param == "from" else (other, store)
    await fill(source, clock)
    for flying in await source.expired(100):
        await source.settle([(flying, lost())])
    clock.advance(100)
    for flying in await source.expired(100):
        await source.settle([(flying, lost())])
    return source, target


async def test_every_letter_arrives_as_it_is(ends):
    source, target = ends
    before = await everything(source)
    report = await copied(source, target)
    assert report.complete
    assert (report.letters, report.copied, report.already_there, report.not_copied) == (len(before), len(before), 0, 0)
    assert await everything(target) == before
    assert await everything(source) == before
    assert await in_order(target) == await in_order(source)
    assert {each["status"] for each in before.values()} == set(Status) - {Status.IN_FLIGHT}
    told = {name for each in before.values() for name, value in each.items() if value}
    assert told == set(Letter.__struct_fields__) - {"token", "worker"}
    await check_books(target)
    assert books(await target.tallies())["enqueued"] == len(before)


async def test_groups_keep_their_titles_and_times(ends):
    source, target = ends
    await copied(source, target)
    assert await target.groups(parse("")) == await source.groups(parse(""))


async def test_copied_again_nothing_is_doubled(ends):
    source, target = ends
    first = await copied(source, target)
    before = await everything(target)
    report = await copied(source, target)
    assert (report.copied, report.already_there, report.complete) == (0, first.copied, True)
    assert await everything(target) == before
    assert (report.handled_keys, first.handled_keys) == (0, len(KEYS))


async def test_a_copy_that_was_interrupted_goes_on(ends):
    source, target = ends
    some = await source.copies.read(None, 5)
    assert all(each.is_new for each in await target.copies.adopt(some.kept))
    report = await copied(source, target)
    assert (report.already_there, report.complete) == (5, True)
    assert await everything(target) == await everything(source)
    assert await in_order(target) == await in_order(source)


async def test_work_goes_on_in_the_other_store(ends, clock):
    source, target = ends
    await copied(source, target)
    assert await settle_all(target, DELIVERED) == ["replayed"]
    assert await status(target, "waits") is Status.PENDING
    [found] = await act(target, "replay", "old")
    assert (found.cycles, len(found.failure_history)) == (2, 2)
    assert [letter.status for letter in await act(target, "restore", "put away", "cancelled")] == ["failed", "pending"]
    [receipt] = await target.put([draft("another", idempotency_key="order-17")])
    assert (receipt.duplicate, receipt.id) == (True, letter_id("old"))
    assert [await target.handled("mailer", key) for key in (*KEYS, "new")] == [False, False, False, True]
    clock.advance(10_000)
    ran = await settle_all(target, DELIVERED)
    assert {"old", "cancelled", "needed", "waited"} <= set(ran)
    assert "waits" not in ran
    assert await settle_all(target, DELIVERED) == ["waits"]
    assert await status(target, "in vain") is Status.PENDING
    await check_books(target)


async def test_the_order_of_a_key_is_kept(ends, clock):
    source, target = ends
    await copied(source, target)
    await put(target, ordered("o4"))
    clock.advance(10)
    ran = [await settle_all(target, DELIVERED, "lane") for _ in range(6)]
    assert ran == [["o0", "p0"], ["o1"], ["o2"], ["o3"], ["o4"], []]


@pytest.mark.parametrize("there", [True, False], ids=["to the other", "from the other"])
async def test_what_letters_do_after_a_failure_comes_along(store, other, there):
    source, target = (store, other) if there else (other, store)
    await put(source, "a", after("b", "a", after_failure="run"), after("c", "a", after_failure="fail"))
    await copied(source, target)
    assert await settle_all(target, give_up()) == ["a"]
    assert await target.stranded(10) == [letter_id("c")]
    assert await settle_all(target, DELIVERED) == ["b"]


async def test_dead_letters_are_found_by_the_text_of_their_errors(ends):
    source, target = ends
    await copied(source, target)
    assert names(await find_all(target, "status:failed error:~AGAIN")) == ["old"]


async def test_settings_and_pauses_of_queues_come_along(store, other):
    spec = QueueSpec(name="slow", ordered=True, max_size=1, rate=2.5, max_in_flight=3)
    await other.declare([spec])
    await other.pause("slow", paused=True, by="eve", reason="the bank is closed")
    await other.declare([QueueSpec(name="known", rate=1.0)])
    await store.declare([QueueSpec(name="known", rate=2.0)])
    report = await copied(other, store)
    found = {state.spec.name: state for state in await store.queues()}
    assert (found["slow"].spec, found["slow"].paused_by, found["slow"].reason) == (spec, "eve", "the bank is closed")
    assert found["known"].spec.rate == 2.0
    assert report.notes == ["queue known has other settings in the target; they stay as they are there"]
    await store.pause("slow", paused=False, by="ada", reason="")
    await copied(other, store)
    assert not {state.spec.name: state for state in await store.queues()}["slow"].paused


async def test_a_key_that_is_unique_in_its_queue_stays_so(store, other):
    wide = {"idempotency_key": "17", "unique_in": "queue"}
    await put(other, draft("a", kind="x", **wide))
    assert (await copied(other, store)).complete
    assert (await get(store, "a")).unique_in == "queue"
    assert await store.put([draft("b", kind="y", **wide)]) == [Receipt(letter_id("a"), duplicate=True)]


async def test_what_the_other_store_keeps_of_another_kind_under_a_key_unique_in_the_queue_is_named(store, other):
    wide = {"idempotency_key": "17", "unique_in": "queue"}
    await put(store, draft("ours", kind="x", **wide))
    await put(other, draft("theirs", kind="y", **wide))
    report = await copied(other, store)
    assert (report.letters, report.copied, report.not_copied, report.complete) == (1, 0, 1, False)


async def test_what_the_other_store_keeps_under_another_id_is_named(store, other):
    await put(other, draft("theirs", idempotency_key="order-17"), after("later", "theirs"), "fine")
    await put(store, draft("ours", idempotency_key="order-17"))
    report = await copied(other, store)
    assert (report.letters, report.copied, report.not_copied, report.complete) == (3, 2, 1, False)
    [refused] = report.named
    assert (refused.id, letter_id("ours") in refused.why) == (letter_id("theirs"), True)
    assert await settle_all(store, DELIVERED) == ["ours", "fine"]
    assert await settle_all(store, DELIVERED) == ["later"]


async def test_a_letter_that_moved_after_it_was_copied_is_named(store, other, clock):
    await put(other, "a", "b")
    await copied(other, store)
    clock.advance(5)
    await act(other, "cancel", "b")
    report = await copied(other, store)
    assert (report.already_there, report.not_copied, report.complete) == (1, 1, False)
    assert "moved in the source after it was copied" in report.named[0].why


async def test_letters_in_the_hands_of_workers_are_not_copied(store, other):
    await put(store, "a")
    [held] = await claim(store)
    with pytest.raises(CopyRefused, match=r"1 of its letters are in flight.*until-idle"):
        await copied(store, other)
    await store.settle([(held, DELIVERED)])
    await store.extend(WorkerBeat(name="w1", kinds=(KIND,)), [], lease=60.0)
    with pytest.raises(CopyRefused, match=r"1 of its workers are alive \(w1\); stop them"):
        await copied(store, other)
    await store.leave("w1")
    assert (await copied(store, other)).complete


async def test_a_store_is_not_copied_to_itself(store):
    await put(store, "a")
    with pytest.raises(CopyRefused, match="both are the same store"):
        await copied(store, store)


async def test_letters_that_come_meanwhile_are_missed_and_said_so(store, other):
    await put(other, "a")

    def enqueue(_: int) -> None:
        with suppress(StopIteration):  # a put into memory never waits
            other.put([draft("b")]).send(None)

    report = await copy(other, store, by="ada", names=NAMES, progress=enqueue)
    assert (report.copied, report.missed, report.complete) == (1, 1, False)
    assert (await copied(other, store)).complete


async def test_letters_that_a_worker_takes_meanwhile_are_named(store, other):
    await put(other, *[f"n{n}" for n in range(60)])
    begun: list[int] = []

    def work(done: int) -> None:
        if not begun:
            with suppress(StopIteration):
                other.claim([WANT], lease=60.0, worker="w1").send(None)
        begun.append(done)

    report = await copy(other, store, by="ada", names=NAMES, progress=work)
    assert (report.copied, report.not_copied, report.complete) == (50, 10, False)
    assert all("it is in flight" in each.why for each in report.named)


async def test_names_that_a_store_cannot_hold_are_named(store, other):
    await put(other, draft("odd", key="\udcff"), draft("fine"))
    report = await copied(other, store)
    assert report.copied + report.not_copied == 2
    assert [("lone surrogate" in each.why) for each in report.named] == [True] * report.not_copied
    assert (await get(store, "fine")).queue == QUEUE
