from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.stores.samples import (
    DELIVERED,
    act,
    check_books,
    claim,
    dead,
    failure,
    find_all,
    get,
    give_up,
    lost,
    names,
    put,
    release,
    retry,
    settle_all,
    status,
)

from redrive.core.decide import Failed, Interrupted, Lost, decide
from redrive.core.letter import Category, Status, instant
from redrive.core.policy import RetryPolicy

POLICY = RetryPolicy.exponential(first=1, cap=60, max_attempts=3, jitter="none")


async def test_a_success_is_delivered_and_its_worker_let_go(store, clock):
    await put(store, "a")
    [claimed] = await claim(store)
    clock.advance(2)
    assert await store.settle([(claimed, DELIVERED)]) == (True,)
    letter = await get(store, "a")

    assert (letter.status, letter.why, letter.worker, letter.attempts) == (Status.DELIVERED, "succeeded", None, 1)
    assert letter.token > claimed.token
    assert letter.updated_us == clock.wall_us()
    clock.advance(1_000)
    assert await store.expired(10) == []


async def test_settling_nothing_is_answered_with_nothing(store):
    assert await store.settle([]) == ()


async def test_a_retry_waits_from_the_stores_own_now(store, clock):
    await put(store, "a")
    [claimed] = await claim(store)
    clock.advance(5)
    await store.settle([(claimed, retry(4, draw=0.25))])
    letter = await get(store, "a")

    assert (letter.status, letter.why, letter.attempts, letter.worker) == (Status.PENDING, "backing off", 1, None)
    assert letter.due_us == clock.wall_us() + 4_000_000
    assert letter.token > claimed.token
    clock.advance(3.9)
    assert await claim(store) == []
    clock.advance(0.1)
    [again] = await claim(store)
    assert again.attempts == 2


async def test_a_retry_leaves_its_error_and_a_line_in_the_attempt_log(store, clock):
    await put(store, "a")
    [claimed] = await claim(store)
    what = failure("no route", error_type="OSError", category=Category.NETWORK, rule="type OSError")
    await store.settle([(claimed, retry(4, what=what, draw=0.25))])
    letter = await get(store, "a")

    assert (letter.error_type, letter.last_error, letter.category) == ("OSError", "no route", "network")
    assert (letter.first_failed_us, letter.failed_us, letter.applied_policy) == (clock.wall_us(), None, "exponential")
    [line] = letter.tries
    assert (line.attempt, line.why, line.error_type, line.error) == (1, "backing off", "OSError", "no route")
    assert (line.category, line.rule, line.delay, line.draw) == ("network", "type OSError", 4, 0.25)
    assert (line.policy, line.at) == ("exponential", instant(clock.wall_us()))


async def test_the_first_failure_of_a_cycle_keeps_its_instant(store, clock):
    await put(store, "a")
    first = clock.wall_us()
    await settle_all(store, retry(0, what=failure("first")))
    clock.advance(10)
    await settle_all(store, give_up(failure("last", category=Category.PERMANENT, fingerprint="f2")))
    letter = await get(store, "a")

    assert (letter.status, letter.why, letter.attempts) == (Status.FAILED, "exhausted", 2)
    assert (letter.first_failed_us, letter.failed_us) == (first, clock.wall_us())
    assert (letter.last_error, letter.category, letter.fingerprint) == ("last", "permanent", "f2")
    assert (letter.applied_policy, letter.worker) == ("exponential", None)
    assert [line.error for line in letter.tries] == ["first", "last"]


async def test_a_dead_letter_stays_where_it_is(store, clock):
    await dead(store, "a")
    clock.advance(1e6)
    assert await claim(store) == []
    assert await store.expired(10) == []


async def test_an_interrupted_letter_gets_its_attempt_back(store):
    await put(store, "a")
    await settle_all(store, release())
    letter = await get(store, "a")
    assert (letter.status, letter.attempts, letter.losses, letter.why) == (Status.PENDING, 0, 0, "interrupted")
    assert (letter.tries, letter.last_error, letter.first_failed_us) == ((), None, None)


async def test_a_loss_is_counted_and_the_attempt_given_back(store):
    await put(store, "a")
    await settle_all(store, retry())
    await settle_all(store, lost())
    letter = await get(store, "a")
    assert (letter.attempts, letter.losses, letter.last_error) == (1, 1, "boom")


async def test_the_attempt_log_keeps_the_newest_fifty(store):
    await put(store, "a")
    for n in range(53):
        await settle_all(store, retry(what=failure(f"error {n}")))
    letter = await get(store, "a")
    assert [line.error for line in letter.tries] == [f"error {n}" for n in range(3, 53)]
    assert letter.attempts == 53


async def test_a_claim_settles_once(store):
    await put(store, "a")
    [claimed] = await claim(store)
    assert await store.settle([(claimed, retry())]) == (True,)
    for move in (DELIVERED, retry(), give_up(), release()):
        assert await store.settle([(claimed, move)]) == (False,)
    letter = await get(store, "a")
    assert (letter.status, letter.attempts, len(letter.tries)) == (Status.PENDING, 1, 1)


@pytest.mark.parametrize(
    ("first", "second", "ends"),
    [
        (DELIVERED, DELIVERED, Status.DELIVERED),
        (DELIVERED, give_up(), Status.DELIVERED),
        (give_up(), DELIVERED, Status.FAILED),
        (retry(), DELIVERED, Status.PENDING),
        (retry(), give_up(), Status.PENDING),
        (give_up(), give_up(), Status.FAILED),
    ],
)
async def test_of_two_settlements_of_one_claim_in_one_call_the_first_wins(store, first, second, ends):
    await put(store, "a", "b")
    claims = await claim(store)
    settlements = [(claims[0], first), (claims[1], DELIVERED), (claims[0], second)]
    assert await store.settle(settlements) == (True, True, False)
    assert await status(store, "a") is ends


async def test_each_settlement_of_a_batch_stands_for_itself(store):
    await put(store, *"abcde")
    claims = await claim(store)
    await store.settle([(claims[1], DELIVERED), (claims[3], retry(60))])
    moves = [DELIVERED, DELIVERED, give_up(), DELIVERED, retry(60)]
    assert await store.settle(list(zip(claims, moves, strict=True))) == (True, False, True, False, True)
    assert [str(await status(store, name)) for name in "abcde"] == [
        "delivered", "delivered", "failed", "pending", "pending"
    ]  # fmt: skip


async def test_claims_of_several_batches_settle_in_one_call(store):
    await put(store, *"abc")
    claims = [each for _ in range(3) for each in await claim(store, 1)]
    assert await store.settle([(each, DELIVERED) for each in claims]) == (True, True, True)


async def test_a_claim_of_an_earlier_cycle_settles_nothing(store):
    await put(store, "a")
    [old] = await claim(store)
    await store.settle([(old, give_up())])
    await act(store, "replay", "a")
    [new] = await claim(store)
    assert await store.settle([(old, DELIVERED)]) == (False,)
    assert await store.settle([(new, DELIVERED)]) == (True,)


async def test_a_claim_on_a_purged_letter_settles_nothing(store):
    await put(store, "a")
    [old] = await claim(store)
    await store.settle([(old, give_up())])
    await act(store, "archive", "a")
    await act(store, "purge", "a")
    assert await store.settle([(old, DELIVERED)]) == (False,)


async def test_what_decide_says_is_carried_out(store, clock):
    await put(store, "a")
    for outcome, expected in [
        (Interrupted("shutdown", wait=3), (Status.PENDING, "shutdown", 0, 0)),
        (Failed(failure()), (Status.PENDING, "backing off", 1, 0)),
        (Lost(), (Status.PENDING, "worker lost", 1, 1)),
        (Failed(failure(retry_after=5.0)), (Status.PENDING, "asked to wait", 2, 1)),
        (Failed(failure()), (Status.FAILED, "exhausted", 3, 1)),
    ]:
        clock.advance(60)
        [claimed] = await claim(store)
        await store.settle([(claimed, decide(claimed, outcome, POLICY, 0.5))])
        letter = await get(store, "a")
        assert (letter.status, letter.why, letter.attempts, letter.losses) == expected


async def test_the_third_loss_makes_a_dead_letter(store):
    await put(store, "poison")
    for _ in range(3):
        [claimed] = await claim(store)
        await store.settle([(claimed, decide(claimed, Lost("killed"), POLICY, 0.5))])
    letter = await get(store, "poison")
    assert (letter.status, letter.why, letter.losses, letter.attempts) == (Status.FAILED, "worker_crashed", 3, 0)
    assert (letter.error_type, letter.fingerprint) == ("WorkerCrashed", "worker_crashed")


async def test_the_newest_try_of_a_cycle_keeps_its_traceback_and_no_other_does(store, clock):
    await put(store, "a")
    for n in (1, 2, 3):
        [claimed] = await claim(store)
        told = failure(traceback=f"Traceback {n} \N{SNOWMAN}\n  File", place=f"shop:ship:{n}", retry_after=float(n))
        move = decide(claimed, Failed(told), POLICY, 0.5)
        await store.settle([(claimed, move)])
        clock.advance(60)
    letter = await get(store, "a")
    assert [one.traceback for one in letter.tries] == ["", "", "Traceback 3 \N{SNOWMAN}\n  File"]
    assert [(one.place, one.retry_after) for one in letter.tries] == [(f"shop:ship:{n}", n) for n in (1, 2, 3)]
    await act(store, "replay", "a")
    again = await get(store, "a")
    assert [one.traceback for one in again.failure_history[0].tries] == ["", "", "Traceback 3 \N{SNOWMAN}\n  File"]


@pytest.mark.parametrize("dies", [False, True])
async def test_letters_that_fail_alike_keep_their_own_logs_and_a_lost_claim_among_them_moves_nothing(store, dies):
    await put(store, *"abcd")
    claims = {name: one for one in await claim(store) for name in names([one])}
    await store.settle([(claims["b"], release(delay=60))])
    what = failure("no route \0 é \u2028", error_type="OSError")
    moves = {name: replace(give_up(what) if dies else retry(4, what=what), draw=n / 8) for n, name in enumerate("abcd")}

    assert await store.settle([(claims[name], moves[name]) for name in "abcd"]) == (True, False, True, True)
    assert [await status(store, name) for name in "acd"] == [Status.FAILED if dies else Status.PENDING] * 3
    assert [(await get(store, name)).tries[0].draw for name in "acd"] == [0, 2 / 8, 3 / 8]
    assert {(await get(store, name)).tries[0].error for name in "acd"} == {what.message}
    assert ((await get(store, "b")).tries, await status(store, "b")) == ((), Status.PENDING)
    assert sorted(names(await find_all(store, "error:~route status:failed"))) == (["a", "c", "d"] if dies else [])
    await check_books(store)


async def test_letters_that_fail_alike_are_due_again_each_at_its_own_time(store, clock):
    await put(store, *"abc")
    claims = {name: one for one in await claim(store) for name in names([one])}
    what = failure("no route", error_type="OSError")
    delays = {"a": 30.0, "b": 10.0, "c": 20.0}
    moves = [(claims[name], retry(delay, what=what)) for name, delay in delays.items()]

    assert await store.settle(moves) == (True, True, True)
    due = {name: (await get(store, name)).due_us - (await get(store, name)).updated_us for name in delays}
    assert due == {name: delay * 1e6 for name, delay in delays.items()}
    for name in "bca":
        clock.advance(10)
        assert names(await claim(store)) == [name]
    await check_books(store)
