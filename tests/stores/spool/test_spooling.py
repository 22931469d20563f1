"""Letters that are accepted while their store is away."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.stores.samples import draft, letter_id
from tests.stores.spool.shutter import Shuttered

from redrive import Redrive
from redrive.core.letter import Status
from redrive.core.query import parse
from redrive.errors import LetterNotFound, QueueFull, SpoolFull, StoreUnavailable
from redrive.stores.contract import QueueSpec, Receipt, books
from redrive.stores.spool import SpoolStore
from redrive.stores.spool.forward_lock import ForwardLock
from redrive.stores.spool.spool_file import SpoolFile


@pytest.fixture
def behind(tmp_path):
    return Shuttered(tmp_path / "store.db")


@pytest.fixture
async def spool(tmp_path, behind):
    store = SpoolStore(behind, str(tmp_path / "spool.db"), limit=100)
    await store.open()
    yield store
    behind.shutter.unlink(missing_ok=True)
    await store.close()


async def until_empty(store):
    async with asyncio.timeout(30):
        while (await store.spooled()).waiting:
            await store.stepped()


async def kept(store):
    """Return the payloads of the letters in the order in which the store has them."""
    page = await store.behind.find(parse(""), limit=500)
    return [letter.payload.decode() for letter in reversed(page.letters)]


async def test_while_the_store_is_there_nothing_is_spooled(spool):
    assert await spool.put([draft("a")]) == [Receipt(letter_id("a"))]
    assert (await spool.spooled()).waiting == 0
    assert await kept(spool) == ["a"]


async def test_while_the_store_is_away_the_receipt_says_spooled_and_the_letter_arrives_when_it_is_back(spool, behind):
    behind.shutter.touch()
    assert await spool.put([draft("a")]) == [Receipt(letter_id("a"), spooled=True)]
    assert (await spool.spooled()).health == "degraded, 1 waiting"
    behind.shutter.unlink()
    await until_empty(spool)
    assert await kept(spool) == ["a"]
    found = await spool.spooled()
    assert (found.health, found.forwarded, found.duplicates) == ("ok", 1, 0)


async def test_a_store_that_does_not_answer_is_given_up_and_what_it_took_all_the_same_is_one_letter(
    spool, behind, monkeypatch
):
    monkeypatch.setattr("redrive.stores.spool.store._QUICK", 0.01)
    answers = asyncio.Event()

    async def put(drafts):
        receipts = await Shuttered.put(behind, drafts)
        await answers.wait()  # it is written, and the answer is on its way
        return receipts

    monkeypatch.setattr(behind, "put", put)
    assert await spool.put([draft("a")]) == [Receipt(letter_id("a"), spooled=True)]
    answers.set()
    await until_empty(spool)
    assert await kept(spool) == ["a"]
    assert (await spool.spooled()).duplicates == 0  # it is the same letter


async def test_every_field_of_a_draft_arrives_as_it_was_given(spool, behind):
    behind.shutter.touch()
    given = draft(
        "a", key="k", idempotency_key="17", unique_in="queue", tenant="t", headers=(("h", b"\xff"),),
        metadata={"a": [1]}, policy="never", generation=3, origin="shop", handler="mail", content_type="text/plain",
    )  # fmt: skip
    await spool.put([given])
    behind.shutter.unlink()
    await until_empty(spool)
    letter = await behind.get(given.id)
    for name in given.__struct_fields__:
        if name not in ("delay", "due_us", "failure", "attempts", "retry", "again", "accepted_us", "counters", "draw"):
            assert getattr(letter, name) == getattr(given, name), name


async def test_a_delay_begins_when_the_letter_is_spooled(spool, behind):
    behind.shutter.touch()
    before = behind._clock.wall_us()
    await spool.put([draft("a", delay=3_600.0)])
    behind.shutter.unlink()
    await until_empty(spool)
    letter = await behind.get(letter_id("a"))
    assert before + 3_600_000_000 <= letter.due_us <= letter.created_us + 3_600_000_000


async def test_a_letter_was_created_when_it_was_spooled(spool, behind):
    behind.shutter.touch()
    before = behind._clock.wall_us()
    await spool.put([draft("a")])
    after = behind._clock.wall_us()
    behind.shutter.unlink()
    await until_empty(spool)
    letter = await behind.get(letter_id("a"))
    assert before <= letter.created_us <= after < letter.due_us
    assert letter.due_us == letter.cycle_us == letter.updated_us  # its retries begin when the store has it


async def test_letters_come_in_the_order_in_which_they_were_accepted(spool, behind):
    await spool.put([draft("0")])
    behind.shutter.touch()
    for n in range(1, 60):
        await spool.put([draft(str(n), key=f"k{n % 3}")])
    behind.shutter.unlink()
    for n in range(60, 90):  # while the others are forwarded
        await spool.put([draft(str(n), key=f"k{n % 3}")])
    await until_empty(spool)
    assert await kept(spool) == [str(n) for n in range(90)]


async def test_a_letter_does_not_overtake_those_of_its_queue_that_wait(spool, behind):
    await behind.declare([QueueSpec(name="work", max_size=1)])
    await spool.put([draft("a")])
    behind.shutter.touch()
    await spool.put([draft("b")])
    behind.shutter.unlink()
    async with asyncio.timeout(20):
        while spool.is_away:
            await spool.stepped()
    assert (await spool.put([draft("c")]))[0].spooled  # the queue is full, and b waits
    assert not (await spool.put([draft("d", queue="other")]))[0].spooled
    await behind.declare([QueueSpec(name="work")])
    await until_empty(spool)
    page = await behind.find(parse("queue:work"), limit=9)
    assert [letter.payload for letter in reversed(page.letters)] == [b"a", b"b", b"c"]


async def test_a_full_queue_is_refused_as_ever_while_nothing_of_it_waits(spool, behind):
    await behind.declare([QueueSpec(name="work", max_size=1)])
    await spool.put([draft("a")])
    with pytest.raises(QueueFull):
        await spool.put([draft("b")])


async def test_a_duplicate_leaves_the_spool_and_is_counted(spool, behind):
    await spool.put([draft("a", idempotency_key="17")])
    behind.shutter.touch()
    await spool.put([draft("b", idempotency_key="17")])
    behind.shutter.unlink()
    await until_empty(spool)
    found = await spool.spooled()
    assert (found.waiting, found.forwarded, found.duplicates) == (0, 0, 1)
    assert await kept(spool) == ["a"]


async def test_the_same_draft_again_is_one_letter(spool, behind):
    behind.shutter.touch()
    await spool.put([draft("a")])
    assert await spool.put([draft("a")]) == [Receipt(letter_id("a"), duplicate=True, spooled=True)]
    behind.shutter.unlink()
    await until_empty(spool)
    assert await kept(spool) == ["a"]


async def test_an_unknown_after_stays_as_refused_and_can_be_retried_or_dropped(spool, behind):
    behind.shutter.touch()
    await spool.put([draft("a", after=(letter_id("missing"),)), draft("b"), draft("c", after=(letter_id("gone"),))])
    behind.shutter.unlink()
    await until_empty(spool)
    found = await spool.spooled()
    assert (found.refused, found.forwarded, found.health) == (2, 1, "degraded, 2 refused")
    assert await kept(spool) == ["b"]
    [letter, _] = sorted(await spool.file.letters("status:failed", 10), key=lambda each: each.metadata["kind"])
    assert letter.error_type == LetterNotFound.__name__

    await spool.put([draft("missing")])
    await spool.file.retry([letter_id("a")], by="ada", reason="it is there now")
    await spool.file.drop([letter_id("c")], by="ada", reason="of no use")
    await until_empty(spool)
    assert await kept(spool) == ["b", "missing", "a"]
    assert (await spool.spooled()).refused == 0


async def test_a_letter_that_waits_for_one_of_a_full_queue_waits_too(spool, behind):
    await behind.declare([QueueSpec(name="work", max_size=1)])
    await spool.put([draft("a")])
    behind.shutter.touch()
    await spool.put([draft("b")])
    await spool.put([draft("c", queue="alpha", after=(letter_id("b"),))])
    behind.shutter.unlink()
    async with asyncio.timeout(20):
        while spool.is_away:
            await spool.stepped()
    assert (await spool.spooled()).refused == 0
    await behind.declare([QueueSpec(name="work")])
    await until_empty(spool)
    assert (await spool.spooled()).refused == 0
    assert (await behind.get(letter_id("c"))).waits_for == 1


async def test_a_full_spool_refuses_and_keeps_nothing_of_the_call(spool, behind):
    behind.shutter.touch()
    for n in range(98):
        await spool.put([draft(str(n))])
    with pytest.raises(SpoolFull, match="holds its maximum of 100 letters; nothing was kept") as refused:
        await spool.put([draft("x"), draft("y"), draft("z")])
    assert isinstance(refused.value, StoreUnavailable)
    assert (await spool.spooled()).waiting == 98
    await spool.put([draft("x"), draft("y")])
    behind.shutter.unlink()
    await until_empty(spool)
    assert len(await kept(spool)) == 100
    assert not (await spool.put([draft("z")]))[0].spooled


async def test_every_other_call_raises_as_it_does_without_a_spool(tmp_path):
    behind = Shuttered(tmp_path / "store.db")
    behind.shutter.touch()
    store = SpoolStore(behind, str(tmp_path / "spool.db"), limit=100)
    await store.open()
    with pytest.raises(StoreUnavailable):
        await store.get(letter_id("a"))
    with pytest.raises(StoreUnavailable):
        await store.tallies()
    await store.close()


async def test_what_waits_survives_a_restart_and_queues_declared_meanwhile_are_known(tmp_path):
    behind = Shuttered(tmp_path / "store.db")
    behind.shutter.touch()
    app = Redrive(store=SpoolStore(behind, str(tmp_path / "spool.db"), limit=100))
    app.queue("lane", ordered=True)
    assert (await app.enqueue("mail", 1, queue="lane", key="k")).spooled
    await app.close()

    behind = Shuttered(tmp_path / "store.db")
    again = Redrive(store=SpoolStore(behind, str(tmp_path / "spool.db"), limit=100))
    again.queue("lane", ordered=True)
    await again.open()
    assert (await again.store.spooled()).waiting == 1
    behind.shutter.unlink()
    await until_empty(again.store)
    assert [state.spec.ordered for state in await again.store.queues() if state.spec.name == "lane"] == [True]
    assert books(await again.store.tallies())["enqueued"] == 1
    await again.close()


async def test_of_two_that_share_a_file_one_forwards_and_the_other_takes_over(tmp_path):
    stores = [SpoolStore(Shuttered(tmp_path / "store.db"), str(tmp_path / "spool.db"), limit=100) for _ in range(2)]
    stores[0].behind.shutter.touch()
    for store in stores:
        await store.open()
    for n in range(20):
        await stores[n % 2].put([draft(str(n), key="k")])
    first = next(store for store in stores if store._lock._descriptor >= 0)
    other = stores[1 - stores.index(first)]
    assert not ForwardLock(first.file.path).take()
    await first.close()
    stores[0].behind.shutter.unlink()
    await until_empty(other)
    assert await kept(other) == [str(n) for n in range(20)]
    await other.close()


async def test_the_settings_put_a_spool_in_front_of_the_store(tmp_path):
    app = Redrive(f"sqlite:///{tmp_path}/store.db", spool=str(tmp_path / "spool.db"), spool_limit=7)
    assert isinstance(app.store, SpoolStore)
    done = []

    @app.handler("mail")
    async def send(n: int):
        done.append(n)

    receipt = await app.enqueue("mail", 1)
    assert not receipt.spooled
    await app.run(until_idle=True, signals=False)
    assert done == [1]
    assert (await app.store.spooled()).limit == 7
    assert (await app.desk.show(receipt.id)).status is Status.DELIVERED
    await app.close()


async def test_what_a_forwarder_held_when_it_died_is_forwarded_first(tmp_path, behind):
    file = SpoolFile(str(tmp_path / "spool.db"), limit=100)
    await file.open()
    for n in range(5):
        await file.keep([draft(str(n))])
    assert len(await file.next("work")) == 5  # and then the process dies
    for n in range(5, 8):
        await file.keep([draft(str(n))])
    await file.close()
    store = SpoolStore(behind, str(tmp_path / "spool.db"), limit=100)
    await store.open()
    await until_empty(store)
    assert await kept(store) == [str(n) for n in range(8)]
    with contextlib.suppress(StoreUnavailable):
        await store.close()
