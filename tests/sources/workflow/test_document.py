"""The Python blocks of the document that users of the queue know: the same calls, arguments and order."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from tests.sources.workflow.samples import Callback, failing

from redrive.errors import SettingsError
from redrive.settings import Settings, load
from redrive.workflow import (
    DeadLetterQueue,
    DeadLetterStatus,
    DLQIntegrationStrategy,
    ErrorCategory,
    RetryPolicy,
    create_dlq_integration,
)


class MahavishnuApp:
    """An app that is put together as the document says."""

    logger = logging.getLogger("mahavishnu")

    def __init__(self, home, error=None, config=None) -> None:
        self.config, self.observability, self.opensearch_integration = config or home.settings, None, None
        self.error, self.home = error, home
        if self.config.dlq_enabled:
            self.dlq = DeadLetterQueue(
                max_size=self.config.dlq_max_size,
                opensearch_client=self.opensearch_integration.client if self.opensearch_integration else None,
                observability_manager=self.observability,
                store=home,
            )
            self.dlq_integration = create_dlq_integration(self)
            self.error_recovery_manager = self.dlq_integration
        else:
            self.dlq = None
            self.dlq_integration = None

    async def start_dlq_processor(self) -> None:
        if not self.config.dlq_enabled or not self.dlq:
            return
        if not self.config.dlq_retry_processor_enabled:
            self.logger.info("DLQ retry processor disabled in configuration")
            return

        async def dlq_retry_callback(task, repos):
            adapter_name = task.get("adapter", "llamaindex")
            return await self.execute_workflow_parallel(task=task, adapter_name=adapter_name, repos=repos)

        await self.dlq.start_retry_processor(
            callback=dlq_retry_callback,
            check_interval_seconds=self.config.dlq_retry_interval_seconds,
        )
        self.logger.info("DLQ retry processor started (interval=%ss)", self.config.dlq_retry_interval_seconds)

    async def stop_dlq_processor(self) -> None:
        if self.dlq:
            await self.dlq.stop_retry_processor()
            self.logger.info("DLQ retry processor stopped")

    async def execute_workflow(self, task, adapter_name, repos):
        if self.error is not None:
            raise self.error
        return {"status": "completed"}

    async def execute_workflow_parallel(self, task, adapter_name, repos):
        return await self.runner.execute_with_dlq(task, adapter_name, repos)

    @property
    def runner(self):
        """The integration around the workflow itself."""
        return create_dlq_integration(_Inner(self))


class _Inner:
    def __init__(self, outer) -> None:
        self.dlq, self.execute_workflow_parallel = outer.dlq, outer.execute_workflow


@pytest.fixture
def users(app) -> MahavishnuApp:
    return MahavishnuApp(app, ConnectionError("connection refused"))


async def manual(dlq, **options):
    await dlq.enqueue(
        task_id="wf_abc123",
        task={"type": "code_sweep"},
        repos=["/path/to/repo"],
        error="Connection timeout",
        retry_policy=RetryPolicy.EXPONENTIAL,
        max_retries=5,
        metadata={"priority": "high"},
        **options,
    )


async def test_1_automatic_integration(users):
    app = users

    async def retry_callback(task, repos):
        return await app.execute_workflow(task, "llamaindex", repos)

    await app.start_dlq_processor()
    result = await app.execute_workflow_parallel(
        task={"type": "code_sweep"}, adapter_name="llamaindex", repos=["/path/to/repo"]
    )
    assert result["status"] == "failed"
    assert result.get("dlq_enqueued")
    app.error = None
    assert (await app.dlq.retry_task(result["dlq_task_id"], callback=retry_callback))["success"]
    await app.stop_dlq_processor()


async def test_2_manual_operations(users):
    await manual(users.dlq)
    pending_tasks = await users.dlq.list_tasks(status=DeadLetterStatus.PENDING, limit=100)
    assert [task.task_id for task in pending_tasks] == ["wf_abc123"]
    task = await users.dlq.get_task("wf_abc123")
    assert f"Retry count: {task.retry_count}/{task.max_retries}" == "Retry count: 0/5"
    assert task.next_retry_at - task.failed_at == timedelta(minutes=1)
    await users.start_dlq_processor()
    result = await users.dlq.retry_task("wf_abc123")
    assert not result["success"]
    assert result["error"] == "connection refused"
    await users.stop_dlq_processor()
    await users.dlq.archive_task("wf_abc123")
    assert await users.dlq.list_tasks() == []


async def test_3_statistics(users):
    await manual(users.dlq)
    stats = await users.dlq.get_statistics()
    assert f"Queue size: {stats['queue_size']}/{stats['max_size']}" == "Queue size: 1/10000"
    assert f"Utilization: {stats['utilization_percent']}%" == "Utilization: 0.01%"
    assert stats["status_breakdown"]["pending"] == 1
    assert stats["error_categories"]["network"] == 1
    assert stats["retry_policies"]["exponential"] == 1
    assert set(stats["lifetime_stats"]) == {
        "enqueued_total", "retry_success", "retry_failed", "exhausted", "manually_retried", "archived",
    }  # fmt: skip


async def test_4_integration_strategies(users):
    users.dlq_integration.set_strategy(DLQIntegrationStrategy.AUTOMATIC)
    assert users.dlq_integration.should_enqueue(PermissionError("access denied"))
    users.dlq_integration.set_strategy(DLQIntegrationStrategy.SELECTIVE)
    errors = {
        "rate limit exceeded": RetryPolicy.EXPONENTIAL,
        "connection refused": RetryPolicy.EXPONENTIAL,
        "out of memory": RetryPolicy.LINEAR,
        "access denied": None,
        "invalid input": None,
        "something strange": None,
    }
    for error, policy in errors.items():
        kept = await users.dlq_integration.enqueue_failed_workflow(error, {"type": "code_sweep"}, [], error)
        assert (kept and kept.retry_policy) == policy
    assert len(await users.dlq.list_tasks()) == 3


@pytest.mark.parametrize(
    ("error", "kept"),
    [("rate limit exceeded", ("exponential", 5)), (ConnectionError("no"), ("exponential", 3)),
     (MemoryError(), ("linear", 2)), (PermissionError("access denied"), None)],
)  # fmt: skip
async def test_5_custom_retry_logic(users, error, kept):
    app = users

    async def custom_enqueue_handler(task_id, task, repos, error):
        error_category = await app.error_recovery_manager.classify_error(error)
        if error_category == ErrorCategory.TRANSIENT:
            retry_policy, max_retries = RetryPolicy.EXPONENTIAL, 5
        elif error_category == ErrorCategory.NETWORK:
            retry_policy, max_retries = RetryPolicy.EXPONENTIAL, 3
        elif error_category == ErrorCategory.RESOURCE:
            retry_policy, max_retries = RetryPolicy.LINEAR, 2
        else:
            return None
        return await app.dlq.enqueue(
            task_id=task_id,
            task=task,
            repos=repos,
            error=str(error),
            retry_policy=retry_policy,
            max_retries=max_retries,
            error_category=error_category.value,
            metadata={"handler": "custom"},
        )

    task = await custom_enqueue_handler("wf_1", {"type": "code_sweep"}, ["/path/to/repo"], error)
    assert (task and (task.retry_policy, task.max_retries)) == kept


def test_6_the_queue_is_put_together_from_the_settings(app):
    users = MahavishnuApp(app)
    assert (users.dlq.max_size, users.dlq_integration.dlq) == (10_000, users.dlq)
    disabled = MahavishnuApp(app, config=load(dlq_enabled=False))
    assert (disabled.dlq, disabled.dlq_integration) == (None, None)


def test_7_the_settings_have_the_documents_defaults_and_bounds():
    names = [name for name in Settings.model_fields if name.startswith("dlq_")]
    settings = load()
    assert {name: getattr(settings, name) for name in names} == {
        "dlq_enabled": True,
        "dlq_max_size": 10_000,
        "dlq_default_retry_policy": "exponential",
        "dlq_default_max_retries": 3,
        "dlq_retry_processor_enabled": True,
        "dlq_retry_interval_seconds": 60,
    }
    with pytest.raises(SettingsError) as refused:
        load(
            dlq_max_size=99, dlq_default_retry_policy="often", dlq_default_max_retries=11, dlq_retry_interval_seconds=9
        )
    assert len(refused.value.problems) == 4
    told = str(refused.value)
    for part in ("99", "100 or more", "'often'", "'never', 'linear', 'exponential' or 'immediate'", "10 or less"):
        assert part in told


async def test_8_start_and_stop_the_processor(users, caplog):
    caplog.set_level("INFO", logger="mahavishnu")
    await users.start_dlq_processor()
    stats = await users.dlq.get_statistics()
    assert (stats["is_processor_running"], stats["retry_interval_seconds"]) == (True, 60)
    await users.stop_dlq_processor()
    assert not (await users.dlq.get_statistics())["is_processor_running"]
    assert caplog.messages == ["DLQ retry processor started (interval=60s)", "DLQ retry processor stopped"]


async def test_8_the_callback_may_be_the_wrapped_workflow(users):
    """Its failure belongs to the task that is retried: there is one task, not one for each retry."""
    failed = await users.execute_workflow_parallel({"type": "code_sweep"}, "llamaindex", ["/path/to/repo"])
    await users.start_dlq_processor()
    assert (await users.dlq.retry_task(failed["dlq_task_id"]))["error"] == "connection refused"
    await users.stop_dlq_processor()
    assert [(task.task_id, task.retry_count) for task in await users.dlq.list_tasks()] == [(failed["dlq_task_id"], 1)]


@pytest.mark.parametrize("setting", ["dlq_enabled", "dlq_retry_processor_enabled"])
async def test_8_a_processor_that_is_disabled_does_not_start(app, setting):
    users = MahavishnuApp(app, config=load(**{setting: False}))
    await users.start_dlq_processor()
    assert not (await DeadLetterQueue(store=app).get_statistics())["is_processor_running"]
    await users.stop_dlq_processor()


async def test_10_the_queue_is_full(users):
    await users.dlq.enqueue("wf_1", {}, [], "Connection timeout", max_retries=0)
    await manual(users.dlq)
    stats = await users.dlq.get_statistics()
    assert f"Queue utilization: {stats['utilization_percent']}%" == "Queue utilization: 0.02%"
    exhausted_tasks = await users.dlq.list_tasks(status=DeadLetterStatus.EXHAUSTED)
    for task in exhausted_tasks:
        await users.dlq.archive_task(task.task_id)
    assert (await users.dlq.get_statistics())["queue_size"] == 1
    count = await users.dlq.clear_all()
    assert f"Cleared {count} tasks" == "Cleared 1 tasks"


async def test_11_retries_do_not_work(users):
    await manual(users.dlq)
    stats = await users.dlq.get_statistics()
    assert not stats["is_processor_running"]
    await users.start_dlq_processor()
    assert stats["retry_interval_seconds"] == 60
    result = await users.dlq.retry_task("wf_abc123")
    assert not result["success"]
    await users.stop_dlq_processor()


async def test_12_many_exhausted_tasks(users):
    await users.dlq.enqueue("wf_1", {}, [], ConnectionError("no"), max_retries=0)
    exhausted_tasks = await users.dlq.list_tasks(status=DeadLetterStatus.EXHAUSTED)
    assert Counter(task.error_category for task in exhausted_tasks if task.error_category) == {"network": 1}


async def test_13_retry_limits(users):
    limits = [
        (RetryPolicy.EXPONENTIAL, 5),
        (RetryPolicy.EXPONENTIAL, 3),
        (RetryPolicy.LINEAR, 2),
        (RetryPolicy.NEVER, 0),
    ]
    for number, (policy, retries) in enumerate(limits):
        task = await users.dlq.enqueue(f"wf_{number}", {}, [], "error", retry_policy=policy, max_retries=retries)
        assert (task.retry_policy, task.max_retries, task.status) == (policy, retries, DeadLetterStatus.PENDING)


async def monitor_dlq(app) -> list[str]:
    """Return the warnings of one look."""
    told = []
    stats = await app.dlq.get_statistics()
    if stats["utilization_percent"] > 80:
        told.append(f"WARNING: DLQ is {stats['utilization_percent']}% full!")
    exhausted_count = stats["status_breakdown"]["exhausted"]
    if exhausted_count > 100:
        told.append(f"WARNING: {exhausted_count} exhausted tasks in DLQ!")
    total_retries = stats["lifetime_stats"]["retry_success"] + stats["lifetime_stats"]["retry_failed"]
    if total_retries > 0:
        success_rate = stats["lifetime_stats"]["retry_success"] / total_retries
        if success_rate < 0.5:
            told.append(f"WARNING: Low retry success rate: {success_rate:.1%}")
    return told


async def test_14_monitoring(users):
    assert await monitor_dlq(users) == []
    await users.dlq.enqueue("wf_1", {}, [], "timeout", retry_policy="immediate", max_retries=1)
    await users.dlq.run_cycle(failing())
    for number in range(2, 102):
        await users.dlq.enqueue(f"wf_{number}", {}, [], "timeout", max_retries=0)
    users.dlq.max_size = 110
    assert await monitor_dlq(users) == [
        "WARNING: DLQ is 91.82% full!",
        "WARNING: 101 exhausted tasks in DLQ!",
        "WARNING: Low retry success rate: 0.0%",
    ]


async def test_15_metadata(users):
    metadata = {
        "workflow_type": "code_sweep",
        "priority": "high",
        "business_unit": "payments",
        "slos": {"max_delay_minutes": 15},
        "on_call_team": "platform-team",
    }
    await users.dlq.enqueue(task_id="wf_abc123", task={}, repos=[], error="error", metadata=metadata)
    assert (await users.dlq.get_task("wf_abc123")).metadata == metadata


async def test_16_archive_old_tasks(users, clock):
    await users.dlq.enqueue("wf_old", {}, [], "timeout", max_retries=0)
    clock.advance(timedelta(days=8).total_seconds())
    await users.dlq.enqueue("wf_new", {}, [], "timeout", max_retries=0)
    cutoff = datetime.fromtimestamp(clock.wall_us() / 1e6, UTC) - timedelta(days=7)
    for task in await users.dlq.list_tasks(status=DeadLetterStatus.EXHAUSTED):
        if task.failed_at < cutoff:
            await users.dlq.archive_task(task.task_id)
    assert [task.task_id for task in await users.dlq.list_tasks()] == ["wf_new"]
    assert (await users.dlq.get_task("wf_old")).status is DeadLetterStatus.ARCHIVED


class Permissions:
    """The user's own roles."""

    def __init__(self, *granted: tuple[str, str, str]) -> None:
        self.granted, self.asked = granted, []

    async def check_permission(self, user_id, resource, action) -> bool:
        self.asked.append((user_id, resource, action))
        return (user_id, resource, action) in self.granted


async def test_17_access_control(users):
    rbac_manager = Permissions(("ada", "dlq", "archive"))

    async def check_dlq_access(user_id: str, operation: str) -> bool:
        if operation == "retry":
            return await rbac_manager.check_permission(user_id, "dlq", "retry")
        if operation == "archive":
            return await rbac_manager.check_permission(user_id, "dlq", "archive")
        return False

    await manual(users.dlq)
    if await check_dlq_access("ada", "retry"):
        await users.dlq.retry_task("wf_abc123")
    if await check_dlq_access("ada", "archive"):
        await users.dlq.archive_task("wf_abc123")
    assert rbac_manager.asked == [("ada", "dlq", "retry"), ("ada", "dlq", "archive")]
    assert (await users.dlq.get_task("wf_abc123")).status is DeadLetterStatus.ARCHIVED


async def test_high_priority_goes_first(users, clock):
    for name, metadata in (("low", {"priority": "low"}), ("plain", {}), ("high", {"priority": "high"})):
        await users.dlq.enqueue(name, {"name": name}, [], "timeout", "immediate", metadata=metadata)
    one = DeadLetterQueue(store=users.home, concurrency=1)
    callback = Callback()
    await one.run_cycle(callback)
    assert [task["name"] for task, _ in callback.calls] == ["high", "plain", "low"]
