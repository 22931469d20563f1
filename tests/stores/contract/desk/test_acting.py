"""The operator's verbs, on letters named by id."""

from __future__ import annotations

import pytest
from tests.stores.samples import (
    DELIVERED,
    act,
    claim,
    dead,
    draft,
    failure,
    get,
    give_up,
    letter_id,
    lost,
    names,
    put,
    retry,
    settle_all,
    status,
)

from redrive.core.letter import Status, instant
from redrive.core.moves import VERBS
from redrive.errors import LetterNotFound, MoveRefused
from redrive.stores.contract import Retention, books


async def test_a_replay_starts_a_new_cycle_at_once(store, clock):
    await put(store, draft("a", idempotency_key="17", generation=1, delay=5))
    clock.advance(5)
    await settle_all(store, retry())
    await settle_all(store, lost())
    await settle_all(store, give_up())
    before = await get(store, "a")
    clock.advance(100)
    [returned] = await act(store, "replay", "a")
    letter = await get(store, "a")

    assert returned == letter
    assert (letter.status, letter.attempts, letter.losses, letter.cycles) == (Status.PENDING, 0, 0, 1)
    assert (letter.due_us, letter.cycle_us, letter.updated_us) == (clock.wall_us(),) * 3
    assert (letter.error_type, letter.last_error, letter.category, letter.fingerprint) == (None,) * 4
    assert (letter.first_failed_us, letter.failed_us, letter.tries) == (None, None, ())
    assert (letter.id, letter.idempotency_key, letter.generation) == (before.id, "17", 1)
    assert (letter.created_us, letter.token > before.token) == (before.created_us, True)
    [claimed] = await claim(store)
    assert (claimed.attempts, claimed.age) == (1, 0)


async def test_a_replay_keeps_the_ended_cycle_in_the_history(store, clock):
    await put(store, draft("a", generation=1))
    await settle_all(store, retry(what=failure("first")))
    await settle_all(store, lost())
    clock.advance(3)
    await settle_all(store, give_up(failure("last")))
    before = await get(store, "a")
    clock.advance(7)
    await act(store, "replay", "a", generation=2)
    letter = await get(store, "a")
    [cycle] = letter.failure_history

    assert letter.generation == 2
    assert (cycle.attempts, cycle.losses, cycle.why, cycle.generation) == (2, 1, "exhausted", 1)
    assert (cycle.error_type, cycle.last_error, cycle.category, cycle.fingerprint) == (
        "ValueError", "last", "transient", "f1"
    )  # fmt: skip
    assert cycle.tries == before.tries
    assert [line.error for line in cycle.tries] == ["first", "last"]
    assert (cycle.first_failed_at, cycle.failed_at) == (before.first_failed_at, before.failed_at)
    assert (cycle.replayed_at, cycle.replayed_by, cycle.reason) == (instant(clock.wall_us()), "ada", "fixed")


async def test_the_history_keeps_the_newest_twenty_cycles_and_counts_all(store):
    await dead(store, "a")
    for n in range(23):
        await act(store, "replay", "a", reason=f"try {n}")
        await settle_all(store, give_up())
    letter = await get(store, "a")
    assert letter.cycles == 23
    assert [cycle.reason for cycle in letter.failure_history] == [f"try {n}" for n in range(3, 23)]


async def test_an_archived_letter_keeps_what_it_failed_of_and_is_restored_as_it_was(store, clock):
    await dead(store, "a")
    before = await get(store, "a")
    clock.advance(5)
    [archived] = await act(store, "archive", "a")
    assert (archived.status, archived.last_error, archived.updated_us) == (Status.ARCHIVED, "boom", clock.wall_us())
    assert await claim(store) == []

    await act(store, "restore", "a")
    restored = await get(store, "a")
    assert restored.token > archived.token > before.token
    for field in ("status", "attempts", "last_error", "error_type", "category", "fingerprint", "failed_us", "tries"):
        assert getattr(restored, field) == getattr(before, field), field
    await act(store, "replay", "a")
    assert names(await claim(store)) == ["a"]


async def test_a_cancelled_letter_does_not_run_until_it_is_restored(store):
    await put(store, "a")
    await act(store, "cancel", "a")
    assert await status(store, "a") is Status.ARCHIVED
    assert await claim(store) == []
    await act(store, "restore", "a")
    assert await status(store, "a") is Status.PENDING
    assert names(await claim(store)) == ["a"]


async def test_a_restored_letter_goes_back_to_where_it_was_archived_from_last(store):
    await put(store, "a")
    await act(store, "cancel", "a")
    await act(store, "restore", "a")
    await settle_all(store, give_up())
    await act(store, "archive", "a")
    await act(store, "restore", "a")
    assert await status(store, "a") is Status.FAILED


async def test_a_cancelled_retry_is_restored_with_its_attempts(store):
    await put(store, "a")
    await settle_all(store, retry())
    await act(store, "cancel", "a")
    await act(store, "restore", "a")
    [claimed] = await claim(store)
    assert claimed.attempts == 2


async def test_a_purged_letter_is_gone_and_counted(store):
    await put(store, "a", "b")
    await act(store, "cancel", "a", "b")
    gone = await act(store, "purge", "a", "b")
    assert sorted(names(gone)) == ["a", "b"]
    assert await store.get(letter_id("a")) is None
    kept = books(await store.tallies())
    assert (kept["enqueued"], kept["purged"], kept["archived"]) == (2, 2, 0)
    with pytest.raises(LetterNotFound):
        await act(store, "restore", "a")


async def _in_status(store, wanted: Status) -> None:
    await put(store, "a")
    match wanted:
        case Status.IN_FLIGHT:
            await claim(store)
        case Status.DELIVERED:
            await settle_all(store, DELIVERED)
        case Status.FAILED:
            await settle_all(store, give_up())
        case Status.ARCHIVED:
            await act(store, "cancel", "a")


@pytest.mark.parametrize("current", list(Status))
@pytest.mark.parametrize("verb", list(VERBS))
async def test_a_verb_acts_on_its_status_and_is_refused_on_every_other(store, verb, current):
    await _in_status(store, current)
    before, entries = await get(store, "a"), await store.audit()
    if VERBS[verb] is current:
        assert len(await act(store, verb, "a")) == 1
        return
    with pytest.raises(MoveRefused, match=f"cannot {verb} letter {letter_id('a')!r}: it is {current}"):
        await act(store, verb, "a")
    assert await get(store, "a") == before
    assert await store.audit() == entries


async def test_an_unknown_verb_is_refused_with_those_there_are(store):
    await dead(store, "a")
    with pytest.raises(MoveRefused, match="operators can replay"):
        await act(store, "explode", "a")


async def test_one_refusal_refuses_all_and_nothing_changes(store):
    await dead(store, "a", "b")
    await put(store, "c")
    entries = await store.audit()
    for others, error in ((("c",), MoveRefused), (("unknown",), LetterNotFound)):
        with pytest.raises(error):
            await act(store, "replay", "a", *others, "b")
    assert [await status(store, name) for name in "abc"] == [Status.FAILED, Status.FAILED, Status.PENDING]
    assert await store.audit() == entries


async def test_every_letter_of_an_act_gets_one_new_token(store):
    await dead(store, "a", "b")
    newest = (await get(store, "b")).token
    acted = await act(store, "replay", "a", "b")
    assert len({letter.token for letter in acted}) == 1
    assert acted[0].token > newest


async def test_an_act_and_its_audit_entry_are_written_together(store, clock):
    await dead(store, "a", "b")
    clock.advance(1)
    await act(store, "replay", "a", by="grace", reason="deployed 1.4")
    await act(store, "archive", "b")
    second, first = (await store.audit())[:2]

    assert (first.by, first.verb, first.target, first.count) == ("grace", "replay", letter_id("a"), 1)
    assert (first.reason, first.at_us) == ("deployed 1.4", clock.wall_us())
    assert (second.verb, second.target) == ("archive", letter_id("b"))
    assert second.seq > first.seq


async def test_one_act_on_many_letters_is_one_entry(store):
    await dead(store, *"abc")
    await act(store, "replay", *"abc")
    [entry] = await store.audit()
    assert (entry.verb, entry.count) == ("replay", 3)


async def test_the_audit_gives_the_newest_entries_first(store):
    await dead(store, "a")
    for _ in range(3):
        await act(store, "archive", "a")
        await act(store, "restore", "a")
    assert [entry.verb for entry in await store.audit(limit=3)] == ["restore", "archive", "restore"]
    assert len(await store.audit()) == 6


async def test_naming_a_letter_twice_acts_on_it_once(store):
    await dead(store, "a")
    assert len(await act(store, "replay", "a", "a")) == 1
    assert (await get(store, "a")).cycles == 1


async def test_a_replayed_letter_is_no_longer_kept_by_retention_of_failed_ones(store, clock):
    await dead(store, "a")
    clock.advance(100)
    await act(store, "replay", "a")
    assert await store.retain(Retention(delivered=0, archived=0, failed=0)) == 0
