"""The operator's reads and the outbox's own words for them, over every store."""

from __future__ import annotations

import pytest
from tests.stores.samples import KIND, act, dead, draft, failure, get, letter_id, put, status

from redrive.core.letter import Status
from redrive.desk.dlq import get_dlq_event_detail, list_dlq_events, replay_dlq_event
from redrive.desk.look.stats import FailedWeek, stats
from redrive.errors import LetterNotFound, MoveRefused

DAY = 86_400


async def test_stats_count_dead_letters_by_the_week_in_which_they_died(store, clock):
    await dead(store, "oldest")
    clock.advance(8 * DAY)
    await dead(store, "a", "b")
    clock.advance(7 * DAY)
    await dead(store, "newest")

    found = (await stats(store, weeks=4)).failed_by_week

    assert [(week.weeks_ago, week.failed) for week in found] == [(0, 1), (1, 2), (2, 1), (3, 0)]
    assert not any(week.more for week in found)


async def test_a_letter_that_was_replayed_or_archived_is_no_failure_of_any_week(store):
    await dead(store, "a", "b", "c")
    await act(store, "replay", "a")
    await act(store, "archive", "b")
    assert (await stats(store, weeks=1)).failed_by_week == [FailedWeek(weeks_ago=0, failed=1, more=False)]


async def test_a_week_with_too_many_dead_letters_is_not_counted_to_the_end(store, monkeypatch):
    monkeypatch.setattr("redrive.desk.look.stats.MOST_A_WEEK", 2)
    await dead(store, "a", "b", "c")
    assert (await stats(store, weeks=1)).failed_by_week == [FailedWeek(weeks_ago=0, failed=2, more=True)]


async def test_the_list_of_dlq_events_has_dead_letters_only_newest_first(store):
    await dead(store, *(draft(name, origin="shop", handler="mailer", generation=3, tenant="t1") for name in "abc"))
    await put(store, "waiting")
    await act(store, "archive", "b")

    first = await list_dlq_events(store, limit=1)
    rest = await list_dlq_events(store, cursor=first.cursor, limit=10)

    assert [event.event_id for event in (*first.events, *rest.events)] == [letter_id("c"), letter_id("a")]
    event = first.events[0]
    assert (event.event_type, event.source, event.target, event.workspace_id) == (KIND, "shop", "mailer", "t1")
    assert (event.status, event.attempts, event.last_error, event.generation) == ("failed", 1, "boom", 3)
    assert rest.cursor is None


async def test_dlq_events_can_be_narrowed_but_not_widened_by_a_query(store):
    await dead(store, "a", what=failure("the bank is away"))
    await dead(store, "b", what=failure("no such order"))
    await put(store, "waiting")
    assert [e.event_id for e in (await list_dlq_events(store, "error:~bank")).events] == [letter_id("a")]
    assert (await list_dlq_events(store, "status:pending")).events == []


async def test_the_detail_of_a_dlq_event_has_payload_tries_and_history(store):
    await dead(store, draft("a", payload=b'{"order":17}'))
    await replay_dlq_event(store, letter_id("a"), 4, "ana@ops", "the bank is back")

    detail = await get_dlq_event_detail(store, letter_id("a"))

    assert (bytes(detail.payload), detail.payload_encoding) == (b'{"order":17}', "json")
    [cycle] = detail.failure_history
    assert (cycle.attempts, cycle.last_error, cycle.replayed_by) == (1, "boom", "ana@ops")
    with pytest.raises(LetterNotFound):
        await get_dlq_event_detail(store, letter_id("nobody"))


async def test_replaying_a_dlq_event_resets_the_cycle_keeps_the_names_and_is_audited(store):
    await dead(store, draft("a", idempotency_key="order-17", generation=3))

    done = await replay_dlq_event(store, letter_id("a"), 4, "ana@ops", "the bank is back")

    letter = await get(store, "a")
    assert done.acted == 1
    assert (letter.status, letter.attempts, letter.last_error, letter.first_failed_at) == ("pending", 0, None, None)
    assert (letter.generation, letter.idempotency_key) == (4, "order-17")
    [entry] = await store.audit(limit=1)
    assert (entry.by, entry.verb, entry.count, entry.reason) == ("ana@ops", "replay", 1, "the bank is back")


async def test_a_letter_that_is_not_failed_is_not_replayed(store):
    await put(store, "a")
    with pytest.raises(MoveRefused):
        await replay_dlq_event(store, letter_id("a"), None, "ana@ops")
    with pytest.raises(LetterNotFound):
        await replay_dlq_event(store, letter_id("nobody"), None, "ana@ops")
    assert await status(store, "a") is Status.PENDING


async def test_an_act_on_something_else_is_recorded_beside_all_others(store):
    await store.record("ana", "kafka replay", "orders.dlq", 17, "the bank is back")
    [entry] = await store.audit(limit=1)
    assert (entry.by, entry.verb, entry.target, entry.count) == ("ana", "kafka replay", "orders.dlq", 17)
    assert entry.reason == "the bank is back"
