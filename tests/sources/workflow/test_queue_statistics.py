"""Queue statistics."""

from __future__ import annotations

import inspect
from collections import Counter

import apsw
from tests.sources.workflow.samples import MINUTE, Callback, enqueue, failing

from redrive import Redrive
from redrive import RetryPolicy as Policy
from redrive.core.facts import TaskMoved
from redrive.engine.clock import new_id
from redrive.sources.workflow import mapping
from redrive.sources.workflow.retrying.running import failure_of
from redrive.workflow import DeadLetterQueue


async def test_an_empty_queue_has_every_key(dlq):
    assert await dlq.get_statistics() == {
        "queue_size": 0,
        "max_size": 10_000,
        "utilization_percent": 0.0,
        "status_breakdown": {"pending": 0, "retrying": 0, "exhausted": 0, "completed": 0, "archived": 0},
        "error_categories": dict.fromkeys(
            ("transient", "network", "resource", "permission", "validation", "permanent"), 0
        ),
        "retry_policies": {"never": 0, "linear": 0, "exponential": 0, "immediate": 0},
        "lifetime_stats": dict.fromkeys(
            ("enqueued_total", "retry_success", "retry_failed", "exhausted", "manually_retried", "archived"), 0
        ),
        "is_processor_running": False,
        "retry_interval_seconds": 60,
    }


async def test_the_numbers_are_over_the_whole_queue_running_tasks_included(dlq, app, clock):
    await enqueue(dlq, "a", error_category="network")
    await enqueue(dlq, "b", error_category="resource")
    await enqueue(dlq, "c", error_category="permission")
    await enqueue(dlq, "d", error_category="transient", max_retries=0)
    running = await enqueue(dlq, "e", error_category="network")
    await app.store.take(running.letter_id, lease=60, worker="host-1")
    stats = await dlq.get_statistics()
    assert (stats["queue_size"], stats["utilization_percent"]) == (5, 0.05)
    assert stats["status_breakdown"] == {"pending": 3, "retrying": 1, "exhausted": 1, "completed": 0, "archived": 0}
    assert {name: count for name, count in stats["error_categories"].items() if count} == {
        "network": 2, "resource": 1, "permission": 1, "transient": 1,
    }  # fmt: skip
    assert stats["retry_policies"] == {"never": 1, "linear": 1, "exponential": 3, "immediate": 0}


async def test_lifetime_numbers_are_shared_and_survive_the_object(app, clock):
    dlq = DeadLetterQueue(store=app)
    await enqueue(dlq, "a", max_retries=1)
    await enqueue(dlq, "b")
    clock.advance(MINUTE)
    await dlq.run_cycle(Callback(ConnectionError("no"), {"status": "completed"}))
    await enqueue(dlq, "c", max_retries=0)
    await dlq.archive_task("c")
    other = DeadLetterQueue(store=app)
    assert (await other.get_statistics())["lifetime_stats"] == {
        "enqueued_total": 3, "retry_success": 1, "retry_failed": 1, "exhausted": 2, "manually_retried": 0,
        "archived": 1,
    }  # fmt: skip


class Manager:
    """Remembers what it is told; raises if it is asked to."""

    def __init__(self, *, broken: bool = False) -> None:
        self.told, self.broken = [], broken

    def log_info(self, message, attributes=None):
        self.told.append((message, attributes))
        if self.broken:
            raise RuntimeError("the exporter is away")

    log_error = log_info


async def test_the_observability_manager_is_told_of_every_step_without_texts_or_payloads(app, clock):
    manager = Manager()
    dlq = DeadLetterQueue(store=app, observability_manager=manager)
    await enqueue(dlq, error="password=hunter2", max_retries=2, retry_policy="immediate")
    for callback in (failing(1), failing(1)):
        clock.advance(1)
        await dlq.run_cycle(callback)
    await enqueue(dlq, "b", retry_policy="immediate")
    clock.advance(1)
    await dlq.run_cycle(Callback())
    assert [message for message, _ in manager.told] == [
        "task enqueued", "retry failed", "task exhausted", "task enqueued", "retry succeeded",
    ]  # fmt: skip
    assert "hunter2" not in str(manager.told)


async def test_an_exception_of_the_observability_manager_changes_nothing(app, clock):
    dlq = DeadLetterQueue(store=app, observability_manager=Manager(broken=True))
    await enqueue(dlq, retry_policy="immediate")
    assert await dlq.run_cycle(Callback()) == 1
    assert (await dlq.get_task("wf_abc123")).status == "completed"


async def test_the_metrics_count_what_becomes_of_tasks_by_category_and_policy(dlq, app, clock):
    facts = []
    app.hub.listen(lambda fact: facts.append(fact) if isinstance(fact, TaskMoved) else None)
    await enqueue(dlq, "a", error_category="network", max_retries=1)
    await enqueue(dlq, "b", error_category="resource", max_retries=1)
    await enqueue(dlq, "c", error_category="permission")
    clock.advance(5 * MINUTE)
    await dlq.run_cycle(Callback(ConnectionError("no")))
    await dlq.archive_task("c")
    await dlq.clear_all()
    moved = Counter((fact.event, fact.category, fact.policy) for fact in facts)
    assert moved == {
        ("enqueued", "network", "exponential"): 1,
        ("enqueued", "resource", "linear"): 1,
        ("enqueued", "permission", "never"): 1,
        ("retried", "network", "exponential"): 1,
        ("exhausted", "network", "exponential"): 1,
        ("retried", "resource", "linear"): 1,
        ("succeeded", "resource", "linear"): 1,
        ("archived", "permission", "never"): 1,
        ("archived", "network", "exponential"): 1,
    }


def drafts(first: int, last: int) -> list:
    """Return tasks as `enqueue` would put them."""
    failure, terms = failure_of("timeout"), mapping.Terms(3, error="timeout")
    call, policy = mapping.Call({}, []), Policy.EXPONENTIAL
    return [
        mapping.draft_of(new_id(), "workflow", f"wf_{n}", call, failure, policy, terms, 0.5) for n in range(first, last)
    ]


class Asked:
    """A store that notes each call and how much it answered."""

    def __init__(self, store) -> None:
        self.behind, self.asked = store, []

    def __getattr__(self, name):
        found = getattr(self.behind, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*given, **named):
            answer = await found(*given, **named)
            self.asked.append((name, len(getattr(answer, "letters", answer) or ())))
            return answer

        return call


async def test_statistics_read_as_much_of_a_hundred_tasks_as_of_thousands(app):
    store = Asked(app.store)
    dlq = DeadLetterQueue(store=Redrive(store=store))
    await dlq.get_statistics()  # opens the store
    read = []
    for first, last in ((0, 100), (100, 3_000)):
        await app.store.put(drafts(first, last))
        store.asked.clear()
        assert (await dlq.get_statistics())["queue_size"] == last
        read.append(list(store.asked))
    assert read[0] == read[1]


async def test_statistics_take_sqlite_as_many_steps_of_a_hundred_tasks_as_of_thousands(tmp_path):
    steps = []

    def watch(connection):
        connection.trace_v2(
            apsw.SQLITE_TRACE_PROFILE, lambda told: steps.append(told["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])
        )

    apsw.connection_hooks.append(watch)
    try:
        app = Redrive(f"sqlite:///{tmp_path}/redrive.db")
        dlq = DeadLetterQueue(store=app)
        await app.open()
        taken = []
        for first, last in ((0, 100), (100, 3_000)):
            await app.store.put(drafts(first, last))
            await dlq.get_statistics()
            steps.clear()
            await dlq.get_statistics()
            taken.append(sum(steps))
        await app.close()
    finally:
        apsw.connection_hooks.remove(watch)
    assert 0 < taken[1] <= 1.5 * taken[0]
