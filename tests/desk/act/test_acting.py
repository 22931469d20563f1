from __future__ import annotations

import pytest
from tests.desk.conftest import failure

from redrive.core.letter import Status
from redrive.core.moves import Move
from redrive.desk.act import plan
from redrive.desk.act.acts import act
from redrive.desk.look import inspect, stats
from redrive.desk.look.audit import audit
from redrive.errors import LetterNotFound, MoveRefused, PlanNotFound, QueryError


async def status(store, letter_id):
    return (await inspect.show(store, letter_id)).status


async def test_a_replay_keeps_id_and_key_and_remembers_who_and_why(store, mill):
    letter_id = await mill.pending(idempotency_key="order-17")
    await mill.settle("order.created", _failed())

    done = await act(store, "replay", [letter_id], by="ana@ops", reason="bug fixed")

    letter = await inspect.show(store, letter_id)
    [cycle] = letter.failure_history
    assert (done.acted, letter.status, letter.idempotency_key) == (1, Status.PENDING, "order-17")
    assert (cycle.replayed_by, cycle.reason, cycle.last_error) == ("ana@ops", "bug fixed", "boom")


async def test_ids_go_all_or_none(store, mill):
    failed, pending = await mill.failed(), await mill.pending("mail.sent")

    with pytest.raises(MoveRefused, match="it is pending"):
        await act(store, "replay", [failed, pending], by="ana")
    with pytest.raises(LetterNotFound):
        await act(store, "replay", [failed, "nope"], by="ana")

    assert await status(store, failed) is Status.FAILED


async def test_a_letter_named_twice_is_acted_on_once(store, mill):
    failed = await mill.failed()

    assert (await act(store, "replay", [failed, failed], by="ana")).acted == 1


async def test_archive_cancel_restore_and_purge_lead_where_they_say(store, mill):
    failed, pending = await mill.failed(), await mill.pending("mail.sent")

    await act(store, "archive", [failed], by="ana")
    await act(store, "cancel", [pending], by="ana")
    assert [await status(store, one) for one in (failed, pending)] == [Status.ARCHIVED, Status.ARCHIVED]

    await act(store, "restore", [failed, pending], by="ana")
    assert [await status(store, one) for one in (failed, pending)] == [Status.FAILED, Status.PENDING]

    await act(store, "archive", [failed], by="ana")
    await act(store, "purge", [failed], by="ana")
    assert await store.get(failed) is None
    assert (await stats.stats(store)).balanced


async def test_a_failed_letter_cannot_be_purged_without_being_archived_first(store, mill):
    failed = await mill.failed()

    with pytest.raises(MoveRefused, match="archive or cancel it first"):
        await act(store, "purge", [failed], by="ana")


@pytest.mark.parametrize("query", ["", "   "])
async def test_an_empty_query_never_acts(store, mill, query):
    failed = await mill.failed()

    with pytest.raises(QueryError):
        await plan.start(store, "replay", query, by="ana")
    with pytest.raises(QueryError):
        await plan.preview(store, "replay", query)
    with pytest.raises(QueryError):
        await act(store, "replay", query=query, by="ana")

    assert await status(store, failed) is Status.FAILED


async def test_ids_and_a_query_together_are_refused(store, mill):
    failed = await mill.failed()

    with pytest.raises(QueryError, match="one of the two"):
        await act(store, "replay", [failed], query="kind:*", by="ana")


async def test_a_bulk_act_touches_nothing_outside_its_query(store, mill):
    inside = [await mill.failed("order.created") for _ in range(5)]
    outside = [await mill.failed("mail.sent") for _ in range(5)]
    waiting = await mill.pending("order.paid")

    done = await act(store, "replay", query="kind:order.*", by="ana", reason="bug fixed")

    assert done.acted == 5
    assert {await status(store, one) for one in inside} == {Status.PENDING}
    assert {await status(store, one) for one in outside} == {Status.FAILED}
    assert (await inspect.show(store, waiting)).cycles == 0


async def test_a_verb_acts_only_on_letters_in_its_own_status(store, mill):
    failed, delivered = await mill.failed(), await mill.delivered()

    done = await act(store, "archive", query="kind:order.created", by="ana")

    assert (done.acted, done.skipped) == (1, 0)
    assert (await status(store, failed), await status(store, delivered)) == (Status.ARCHIVED, Status.DELIVERED)


async def test_a_killed_plan_goes_on_where_it_stopped_and_touches_each_letter_once(store, mill):
    ids = [await mill.failed() for _ in range(10)]
    started = await plan.start(store, "replay", "status:failed", by="ana", reason="fixed")

    def killed(seen):
        if seen.acted >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await plan.carry_out(store, started.id, page=2, progress=killed)
    assert (await store.plan(started.id)).acted == 4

    done = await plan.carry_out(store, started.id, page=3)

    assert (done.acted, done.done) == (10, True)
    assert [(await inspect.show(store, one)).cycles for one in ids] == [1] * 10
    assert (await plan.carry_out(store, started.id)).acted == 10


async def test_a_letter_that_fails_again_during_a_plan_is_not_replayed_again_by_it(store, mill):
    ids = [await mill.failed() for _ in range(4)]
    started = await plan.start(store, "replay", "status:failed", by="ana")
    await store.step(started.id, limit=2)
    await mill.settle("order.created", _failed())

    await plan.carry_out(store, started.id)

    assert [(await inspect.show(store, one)).cycles for one in ids] == [1] * 4
    assert [await status(store, one) for one in ids].count(Status.FAILED) == 1


async def test_letters_that_fail_after_a_plan_was_made_are_not_part_of_it(store, mill):
    await mill.failed()
    started = await plan.start(store, "replay", "status:failed", by="ana")
    later = await mill.failed()

    assert (await plan.carry_out(store, started.id)).acted == 1
    assert await status(store, later) is Status.FAILED


async def test_a_canary_acts_on_so_many_and_no_more(store, mill):
    ids = [await mill.failed() for _ in range(6)]

    done = await act(store, "replay", query="status:failed", by="ana", limit=2)

    assert (done.acted, done.done) == (2, True)
    assert [await status(store, one) for one in ids].count(Status.PENDING) == 2


async def test_a_rate_is_kept_by_resting_between_pages(store, mill):
    for _ in range(25):
        await mill.failed()
    started = await plan.start(store, "replay", "status:failed", by="ana")
    rests = []

    async def sleep(seconds):
        rests.append(seconds)

    done = await plan.carry_out(store, started.id, rate=10, sleep=sleep)

    assert (done.acted, rests) == (25, [1.0, 1.0])


@pytest.mark.parametrize("rate", [0, -1])
async def test_a_rate_of_nothing_is_refused(store, mill, rate):
    started = await plan.start(store, "replay", "status:failed", by="ana")

    with pytest.raises(QueryError, match="a rate is a number above 0"):
        await plan.carry_out(store, started.id, rate=rate)


async def test_an_unknown_plan_and_an_unknown_verb_are_refused(store):
    with pytest.raises(PlanNotFound):
        await plan.carry_out(store, "nope")
    with pytest.raises(MoveRefused, match="operators can replay"):
        await plan.start(store, "explode", "kind:*", by="ana")


async def test_a_preview_counts_and_samples_without_writing(store, mill):
    for _ in range(7):
        await mill.failed()
    await mill.failed("mail.sent")
    await mill.delivered()

    seen = await plan.preview(store, "replay", "kind:*", at_most=5)
    whole = await plan.preview(store, "replay", "kind:*")

    assert (seen.count, seen.at_least) == (5, True)
    assert (whole.count, whole.at_least, whole.kinds) == (8, False, {"order.created": 7, "mail.sent": 1})
    assert len(whole.sample) == 5
    assert (await audit(store)).entries == []


async def test_a_status_that_is_only_quoted_text_does_not_widen_a_preview(store, mill):
    await mill.failed(error="it said status:failed loudly")
    await mill.pending()

    seen = await plan.preview(store, "replay", '-error:"x status:failed y"')

    assert seen.count == 1
    assert seen.query.endswith(" status:failed")


async def test_every_page_of_a_plan_is_audited_with_author_and_reason(store, mill):
    for _ in range(4):
        await mill.failed()
    started = await plan.start(store, "archive", "status:failed", by="ana@ops", reason="not needed")

    await plan.carry_out(store, started.id, page=2)

    pages = [one for one in (await audit(store)).entries if one.verb == "archive" and one.count]
    assert [(one.by, one.count, one.reason) for one in pages] == [("ana@ops", 2, "not needed")] * 2
    assert all(started.id in one.target for one in pages)


def _failed():
    return Move(Status.FAILED, "exhausted", failure=failure())
