"""A claim lasts as long as its lease: heartbeats renew it, and what a worker that is gone held comes back."""

from __future__ import annotations

import pytest
from tests.stores.samples import (
    DELIVERED,
    KIND,
    LEASE,
    QUEUE,
    WANT,
    WORKER,
    claim,
    draft,
    get,
    lost,
    names,
    put,
    status,
)

from redrive.core.letter import Status
from redrive.stores.contract import WorkerBeat, orphans

BEAT = WorkerBeat(name=WORKER, kinds=(KIND,), in_flight=1)


async def test_a_lease_ends_and_the_claim_is_found(store, clock):
    await put(store, "a")
    [claimed] = await claim(store, lease=10)
    clock.advance(9)
    assert await store.expired(10) == []
    clock.advance(2)
    [over] = await store.expired(10)
    assert (over.ref, over.token, over.attempts, over.losses) == (claimed.ref, claimed.token, 1, 0)
    assert over.letter.id == claimed.letter.id
    assert over.age == pytest.approx(11)


async def test_the_longest_ended_lease_is_found_first(store, clock):
    await put(store, "a", "b", "c")
    await claim(store, 1, lease=30)
    await claim(store, 1, lease=10)
    await claim(store, 1, lease=20)
    clock.advance(60)
    assert names(await store.expired(2)) == ["b", "c"]


async def test_leases_do_not_notice_when_the_wall_clock_jumps(store, clock):
    await put(store, "a")
    await claim(store, lease=10)
    clock.jump(86_400)
    assert await store.expired(10) == []
    clock.jump(-2 * 86_400)
    clock.advance(11)
    assert names(await store.expired(10)) == ["a"]


async def test_an_expired_letter_is_not_claimed_before_it_is_rescued(store, clock):
    await put(store, "a")
    await claim(store, lease=10)
    clock.advance(100)
    assert await claim(store) == []


async def test_a_rescued_letter_runs_again_and_its_old_claim_is_worthless(store, clock):
    await put(store, "a")
    [old] = await claim(store, lease=10)
    clock.advance(11)
    [over] = await store.expired(10)
    assert await store.settle([(over, lost())]) == (True,)
    assert await store.settle([(old, DELIVERED)]) == (False,)

    letter = await get(store, "a")
    assert (letter.status, letter.attempts, letter.losses, letter.worker) == (Status.PENDING, 0, 1, None)
    [new] = await claim(store)
    assert new.losses == 1
    assert await store.settle([(old, DELIVERED)]) == (False,)
    assert await store.settle([(new, DELIVERED)]) == (True,)


async def test_a_late_worker_may_settle_as_long_as_nobody_rescued_its_letter(store, clock):
    await put(store, "a")
    [late] = await claim(store, lease=10)
    clock.advance(1_000)
    [over] = await store.expired(10)
    assert await store.settle([(late, DELIVERED)]) == (True,)
    assert await store.settle([(over, lost())]) == (False,)
    assert await status(store, "a") is Status.DELIVERED


async def test_a_heartbeat_renews_claims_without_moving_their_letters(store, clock):
    await put(store, "a")
    [claimed] = await claim(store, lease=10)
    before = await get(store, "a")
    clock.advance(9)
    assert await store.extend(BEAT, [claimed], lease=10) == []
    clock.advance(9)
    assert await store.expired(10) == []
    assert await get(store, "a") == before
    clock.advance(2)
    assert names(await store.expired(10)) == ["a"]


async def test_a_heartbeat_names_the_claims_that_are_no_longer_held(store, clock):
    await put(store, "kept", "settled", "rescued")
    kept, settled, rescued = await claim(store, lease=10)
    clock.advance(11)
    await store.settle([(settled, DELIVERED), (rescued, lost())])
    [again] = await claim(store)

    assert sorted(names(await store.extend(BEAT, [settled, kept, rescued], lease=10))) == ["rescued", "settled"]
    assert await store.extend(BEAT, [kept, again], lease=10) == []


async def test_workers_are_listed_by_name_and_alive_while_their_lease_lasts(store, clock):
    await store.extend(WorkerBeat(name="b", kinds=("x", "y")), [], lease=60)
    await store.extend(WorkerBeat(name="a", kinds=(KIND,)), [], lease=10)
    clock.advance(30)
    first, second = await store.workers()

    assert (first.name, first.alive) == ("a", False)
    assert (second.name, second.kinds, second.alive) == ("b", ("x", "y"), True)
    assert second.seen_us == clock.wall_us() - 30_000_000


async def test_a_worker_is_listed_with_the_letters_that_are_in_its_hands_now(store):
    await put(store, "a", "b", "c")
    for name in ("idle", "busy"):
        await store.extend(WorkerBeat(name=name, kinds=(KIND,)), [], lease=60)
    first, *_ = await store.claim([WANT], lease=LEASE, worker="busy")
    before = {beat.name: beat.in_flight for beat in await store.workers()}
    await store.settle([(first, DELIVERED)])
    after = {beat.name: beat.in_flight for beat in await store.workers()}

    assert (before, after) == ({"busy": 3, "idle": 0}, {"busy": 2, "idle": 0})


async def test_a_worker_that_signed_off_is_listed_no_more(store):
    for name in ("stays", "ends"):
        await store.extend(WorkerBeat(name=name, kinds=(KIND,)), [], lease=60)
    await store.leave("ends")
    await store.leave("never came")

    assert [beat.name for beat in await store.workers()] == ["stays"]


async def test_what_a_worker_holds_when_it_signs_off_is_rescued(store, clock):
    await put(store, "a")
    await store.extend(WorkerBeat(name="ends", kinds=(KIND,)), [], lease=10)
    await store.claim([WANT], lease=10, worker="ends")
    await store.leave("ends")
    clock.advance(11)

    assert not any(beat.alive for beat in await store.workers())
    assert names(await store.expired(10)) == ["a"]


async def test_a_worker_says_from_which_queue_it_takes_each_kind(store):
    await store.extend(WorkerBeat(name="a", kinds=("x", "y"), queues=("orders", "mails")), [], lease=60)
    await store.extend(WorkerBeat(name="b", kinds=("x",)), [], lease=60)
    some, anywhere = await store.workers()

    assert (some.kinds, some.queues) == (("x", "y"), ("orders", "mails"))
    assert (anywhere.kinds, anywhere.queues) == (("x",), ())


async def test_a_kind_is_an_orphan_where_no_live_worker_takes_it(store, clock):
    await store.put([draft("a"), draft("b", queue="other"), draft("c", kind="mail.sent")])
    await store.extend(WorkerBeat(name="one", kinds=(KIND,), queues=("other",)), [], lease=60)
    await store.extend(WorkerBeat(name="old", kinds=("mail.sent",)), [], lease=60)
    seen = orphans(await store.tallies(), await store.workers())
    clock.advance(61)
    later = orphans(await store.tallies(), await store.workers())

    assert seen == {(QUEUE, KIND): 1}
    assert later == {("other", KIND): 1, (QUEUE, "mail.sent"): 1, (QUEUE, KIND): 1}


async def test_a_worker_not_seen_for_long_is_forgotten(store, clock):
    await store.extend(WorkerBeat(name="old", kinds=()), [], lease=60)
    clock.advance(7 * 86_400)
    await store.extend(WorkerBeat(name="new", kinds=()), [], lease=60)
    assert [beat.name for beat in await store.workers()] == ["new"]
