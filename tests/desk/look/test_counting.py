from __future__ import annotations

import pytest

from redrive.core.breaker import BreakerRules
from redrive.core.failures.verdict import Verdict, judge
from redrive.core.letter import Category
from redrive.desk.act import queues
from redrive.desk.act.acts import act
from redrive.desk.look.group import Sums, evidence, groups
from redrive.desk.look.stats import stats
from redrive.stores.contract import Group, QueueSpec, Tally, WorkerBeat

BOOKS = ["enqueued", "pending", "in_flight", "delivered", "failed", "archived", "purged"]


async def test_the_books_balance_after_everything_that_can_happen(store, mill):
    gone, kept = await mill.failed(), await mill.failed()
    await mill.failed()
    await mill.delivered()
    await mill.pending("mail.sent")
    await act(store, "archive", [gone, kept], by="ana")
    await act(store, "purge", [gone], by="ana")

    found = await stats(store)

    assert list(found.books) == BOOKS
    assert list(found.books.values()) == [5, 1, 0, 1, 1, 1, 1]
    assert found.balanced


async def test_stats_tell_failures_apart(store, mill):
    await mill.failed(category=Category.NETWORK, error_type="ConnectionError")
    await mill.failed(category=Category.NETWORK, error_type="TimeoutError")
    await mill.failed("mail.sent", category=Category.VALIDATION)

    found = await stats(store)

    assert found.failed_by_category == {"network": 2, "validation": 1}
    assert found.failed_by_error == {"ConnectionError": 1, "TimeoutError": 1, "ValueError": 1}
    assert found.by_kind["order.created"]["failed"] == 2
    assert found.by_queue["default"]["enqueued"] == 3


async def test_the_oldest_failure_is_the_one_that_waited_longest(store, mill, clock):
    first = await mill.failed()
    clock.advance(60)
    await mill.failed()

    assert (await stats(store)).oldest_failed.id == first


async def test_an_empty_store_has_empty_books(store):
    found = await stats(store)

    assert (sum(found.books.values()), found.balanced, found.oldest_failed) == (0, True, None)


async def test_kinds_that_no_live_worker_handles_are_orphaned(store, mill):
    await mill.pending("order.created")
    await mill.pending("mail.sent")
    await mill.pending("mail.sent")
    await store.extend(WorkerBeat(name="w1", kinds=("order.created",)), [], lease=60)

    assert (await stats(store)).orphaned == {"default": {"mail.sent": 2}}


async def test_a_dead_worker_handles_nothing(store, mill, clock):
    await mill.pending()
    await store.extend(WorkerBeat(name="w1", kinds=("order.created",)), [], lease=60)
    clock.advance(61)

    assert (await stats(store)).orphaned == {"default": {"order.created": 1}}


async def test_breakers_and_paused_queues_are_reported(store):
    await store.report("bank", BreakerRules(), successes=0, failures=10)
    await queues.pause(store, "default", by="ana", reason="bank is down")

    found = await stats(store)

    assert [(one.name, one.state) for one in found.breakers] == [("bank", "open")]
    assert found.paused == ["default"]


async def test_queues_are_listed_with_what_they_hold_and_who_paused_them(store, mill):
    await store.declare([QueueSpec(name="default", max_size=10)])
    await mill.pending("mail.sent")
    await mill.failed()
    await queues.pause(store, "default", by="ana", reason="bank is down")

    [seen] = (await queues.queues(store)).queues
    await queues.resume(store, "default", by="ana")
    [after] = (await queues.queues(store)).queues

    assert (seen.paused, seen.paused_by, seen.reason) == (True, "ana", "bank is down")
    assert (seen.pending, seen.failed, seen.max_size, after.paused) == (1, 1, 10, False)


async def test_groups_come_with_a_verdict_and_keep_to_the_query(store, mill):
    for _ in range(3):
        await mill.failed(fingerprint="f1", category=Category.NETWORK)
    await mill.failed("mail.sent", fingerprint="f2", category=Category.VALIDATION, error="bad address")

    everything = (await groups(store)).groups
    [mail] = (await groups(store, "kind:mail.*")).groups

    assert [(one.group, one.count, one.verdict) for one in everything] == [("f1", 3, "dependency"), ("f2", 1, "poison")]
    assert (mail.group, mail.title) == ("f2", "bad address")


def _group(**traits):
    fields = {"fingerprint": "f1", "error_type": "E", "title": "t", "count": 1, "kinds": ("k",)}
    fields |= {"categories": ("transient",), "first_seen_us": 0, "last_seen_us": 0}
    return Group(**(fields | traits))


def _tally(status, count):
    return Tally(queue="q", kind="k", status=status, count=count)


@pytest.mark.parametrize(
    ("group", "tallies", "verdict"),
    [
        (_group(fingerprint="worker_crashed", categories=("resource",)), [], Verdict.POISON),
        (_group(categories=("network", "resource")), [], Verdict.DEPENDENCY),
        (_group(count=10), [_tally("delivered", 10), _tally("failed", 10)], Verdict.SYSTEMIC),
        (_group(count=10), [_tally("delivered", 11), _tally("failed", 10)], Verdict.POISON),
        (_group(count=9), [_tally("failed", 9)], Verdict.UNCLEAR),
        (_group(categories=("validation",)), [_tally("failed", 1)], Verdict.POISON),
        (_group(), [_tally("delivered", 1), _tally("failed", 1)], Verdict.POISON),
    ],
)
def test_each_rule_gives_its_verdict(group, tallies, verdict):
    assert judge(evidence(group, Sums(tallies)))[0] is verdict
