"""Integration with workflow execution."""

from __future__ import annotations

import asyncio

import pytest
from tests.sources.workflow.samples import MINUTE, REPOS, TASK, failing

from redrive.core.breaker import BreakerRules, BreakerState
from redrive.signals.log import log_facts
from redrive.workflow import (
    DeadLetterQueue,
    DeadLetterStatus,
    DLQIntegration,
    DLQIntegrationStrategy,
    ErrorCategory,
    RetryPolicy,
    create_dlq_integration,
)


class App:
    """An app of the user's own: it has a queue and runs workflows."""

    def __init__(self, dlq, error=None) -> None:
        self.dlq, self.error, self.calls = dlq, error, []
        self.dlq_integration = create_dlq_integration(self)

    async def execute_workflow_parallel(self, task, adapter_name, repos=None, user_id=None):
        self.calls.append((task, adapter_name, repos))
        if isinstance(self.error, BaseException):
            raise self.error
        return self.error or {"status": "completed"}


@pytest.fixture
def users(dlq) -> App:
    return App(dlq, ConnectionError("connection refused"))


async def test_it_is_created_by_a_plain_call_or_awaited(dlq):
    users = App(dlq)
    assert isinstance(create_dlq_integration(users), DLQIntegration)
    assert isinstance(await create_dlq_integration(users), DLQIntegration)


async def test_a_failed_workflow_is_enqueued_and_the_result_says_so(users, dlq):
    result = await users.dlq_integration.execute_with_dlq(TASK, "llamaindex", REPOS)
    told = {
        name: result[name] for name in ("status", "error", "error_type", "dlq_enqueued", "retry_policy", "max_retries")
    }
    assert told == {
        "status": "failed", "error": "connection refused", "error_type": "ConnectionError", "dlq_enqueued": True,
        "retry_policy": "exponential", "max_retries": 3,
    }  # fmt: skip
    task = await dlq.get_task(result["dlq_task_id"])
    assert (task.task, task.repos) == ({"adapter": "llamaindex", **TASK}, REPOS)


async def test_a_workflow_that_succeeds_is_left_alone(dlq):
    users = App(dlq)
    assert await users.dlq_integration.execute_with_dlq(TASK, "llamaindex") == {"status": "completed"}
    assert await dlq.list_tasks() == []


async def test_a_workflow_that_returns_a_failure_is_enqueued_too(dlq):
    users = App(dlq, {"status": "failed", "error": "rate limit exceeded", "run": 7})
    result = await users.dlq_integration.execute_with_dlq(TASK, "llamaindex")
    assert (result["dlq_enqueued"], result["run"], result["error"]) == (True, 7, "rate limit exceeded")


async def test_while_a_callback_runs_nothing_is_enqueued(users, dlq, clock):
    integration = users.dlq_integration
    first = await integration.execute_with_dlq(TASK, "llamaindex", REPOS)

    async def callback(task, repos):
        return await integration.execute_with_dlq(task, task["adapter"], repos)

    for _ in range(8):
        clock.advance(60 * MINUTE)
        await dlq.run_cycle(callback)
    tasks = await dlq.list_tasks()
    assert [(task.task_id, task.status, task.retry_count) for task in tasks] == [
        (first["dlq_task_id"], DeadLetterStatus.EXHAUSTED, 3)
    ]


def in_a_task(workflow):
    return lambda task, repos: asyncio.create_task(workflow(task, repos))


def in_a_thread(workflow):
    return lambda task, repos: asyncio.run(workflow(task, repos))  # the callback is no coroutine: it gets a thread


@pytest.mark.parametrize("started", [in_a_task, in_a_thread])
async def test_tasks_and_threads_of_a_callback_enqueue_nothing_either(users, dlq, clock, started):
    @users.dlq_integration.workflow
    async def sweep(task, repos):
        raise ConnectionError("connection refused")

    await sweep(TASK, REPOS)
    clock.advance(MINUTE)
    callback = started(sweep)

    async def awaited(task, repos):
        return await callback(task, repos)

    await dlq.run_cycle(awaited if started is in_a_task else callback)
    assert [task.retry_count for task in await dlq.list_tasks()] == [1]
    assert (await users.dlq_integration.get_statistics())["integration"] == {
        "enqueued": 1, "left_out": 0, "not_kept": 0,
    }  # fmt: skip


async def test_a_retry_uses_the_adapter_that_ran(users, dlq, clock):
    await users.dlq_integration.execute_with_dlq({"adapter": "prefect", **TASK}, "llamaindex", REPOS)
    clock.advance(MINUTE)
    await dlq.run_cycle(users.dlq_integration._run_again)
    assert [adapter for _, adapter, _ in users.calls] == ["llamaindex", "llamaindex"]


async def test_the_breaker_of_the_integration_is_that_of_its_tasks(app, dlq):
    users = App(dlq, ConnectionError("connection refused"))
    integration = create_dlq_integration(users, breaker="payments")
    failed = await integration.execute_with_dlq(TASK, "llamaindex")
    guarded = DeadLetterQueue(store=app, breakers={"payments": BreakerRules(failures=1)})
    await guarded.retry_task(failed["dlq_task_id"], callback=failing())
    assert {name: each.state for name, each in (await app.store.breakers()).items()} == {"payments": BreakerState.OPEN}


# ---------------------------------------------------------------------- strategies


CASES = [
    (ConnectionError("refused"), RetryPolicy.EXPONENTIAL), (TimeoutError(), RetryPolicy.EXPONENTIAL),
    ("rate limit exceeded", RetryPolicy.EXPONENTIAL), (MemoryError(), RetryPolicy.LINEAR),
    (PermissionError("access denied"), None), (ValueError("invalid input"), None), ("something strange", None),
]  # fmt: skip


@pytest.mark.parametrize(("error", "policy"), CASES, ids=lambda value: repr(value)[:30])
async def test_selective_enqueues_what_can_heal_with_the_policy_of_its_category(users, error, policy):
    users.dlq_integration.set_strategy(DLQIntegrationStrategy.SELECTIVE)
    kept = await users.dlq_integration.enqueue_failed_workflow("wf_1", TASK, REPOS, error)
    assert (kept and kept.retry_policy) == policy


async def test_selective_raises_the_workflows_own_error_for_what_it_leaves_out_and_counts_it(dlq):
    users = App(dlq, PermissionError("access denied"))
    users.dlq_integration.set_strategy(DLQIntegrationStrategy.SELECTIVE)
    with pytest.raises(PermissionError, match="access denied"):
        await users.dlq_integration.execute_with_dlq(TASK, "llamaindex")
    assert (await users.dlq_integration.get_statistics())["integration"]["left_out"] == 1
    users.dlq_integration.reset_statistics()
    assert (await users.dlq_integration.get_statistics())["integration"]["left_out"] == 0


@pytest.mark.parametrize("strategy", [DLQIntegrationStrategy.MANUAL, DLQIntegrationStrategy.DISABLED])
async def test_manual_and_disabled_enqueue_nothing_by_themselves(users, dlq, strategy):
    users.dlq_integration.set_strategy(strategy)
    assert users.dlq_integration.get_strategy() is strategy
    with pytest.raises(ConnectionError):
        await users.dlq_integration.execute_with_dlq(TASK, "llamaindex")
    assert await dlq.list_tasks() == []


async def test_automatic_keeps_permanent_errors_with_policy_never(users):
    kept = await users.dlq_integration.enqueue_failed_workflow("wf_1", TASK, REPOS, PermissionError("access denied"))
    assert (kept.retry_policy, kept.status, kept.next_retry_at) == (RetryPolicy.NEVER, DeadLetterStatus.PENDING, None)


# ---------------------------------------------------------------------- classification


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (TimeoutError(), ErrorCategory.NETWORK),
        ("invalid connection string", ErrorCategory.VALIDATION),
        ("author not found", ErrorCategory.PERMANENT),
    ],
    ids=str,
)
async def test_errors_that_were_misjudged_before_are_judged_right(users, error, category):
    assert await users.dlq_integration.classify_error(error) is category


# ---------------------------------------------------------------------- the workflow's own error is never hidden


async def test_a_full_queue_does_not_hide_the_workflows_error(app):
    dlq = DeadLetterQueue(max_size=1, store=app)
    users = App(dlq, ConnectionError("connection refused"))
    await users.dlq_integration.execute_with_dlq(TASK, "llamaindex")
    result = await users.dlq_integration.execute_with_dlq(TASK, "llamaindex")
    assert (result["error"], result["dlq_enqueued"], result["dlq_task_id"]) == ("connection refused", False, None)
    assert "maximum of 1" in result["dlq_error"]


async def test_a_store_that_is_away_does_not_hide_the_workflows_error(users, dlq, app):
    await dlq.get_statistics()
    await app.store.close()
    result = await users.dlq_integration.execute_with_dlq(TASK, "llamaindex")
    await app.store.open()
    assert (result["error"], result["dlq_enqueued"]) == ("connection refused", False)
    assert result["dlq_error"]


# ---------------------------------------------------------------------- wrapping any function


async def test_a_decorated_async_function_returns_its_result_or_the_failed_one(users, dlq):
    @users.dlq_integration.workflow
    async def sweep(task, repos):
        if task["broken"]:
            raise ConnectionError("connection refused")
        return "fine"

    assert await sweep({"broken": False}, REPOS) == "fine"
    result = await sweep({"broken": True}, repos=REPOS)
    assert (await dlq.get_task(result["dlq_task_id"])).repos == REPOS


async def test_a_decorated_sync_function_is_awaited_too(users):
    @users.dlq_integration.workflow
    def sweep(task):
        raise TimeoutError("slow")

    assert (await sweep({"a": 1}))["dlq_enqueued"]


@pytest.mark.parametrize("failed", [{"status": "failed", "error": "connection refused"}, {"success": False}])
async def test_a_decorated_function_that_returns_a_failure_is_enqueued_too(users, dlq, failed):
    @users.dlq_integration.workflow
    def sweep(task):
        return failed

    result = await sweep(TASK)
    assert (result["status"], result["dlq_enqueued"]) == ("failed", True)
    assert (await dlq.get_task(result["dlq_task_id"])).last_error == result["error"]


@pytest.mark.parametrize("task", ["no mapping", 5, None, {"n": object()}])
async def test_a_task_that_cannot_be_kept_does_not_hide_the_workflows_error(users, dlq, task):
    @users.dlq_integration.workflow
    async def sweep(task):
        raise ConnectionError("connection refused")

    result = await sweep(task)
    assert (result["error"], result["error_type"], result["dlq_enqueued"]) == (
        "connection refused", "ConnectionError", False,
    )  # fmt: skip
    assert result["dlq_error"]
    assert await dlq.list_tasks() == []


async def test_a_block_can_be_captured(users, dlq):
    async with users.dlq_integration.capture(TASK, REPOS, "wf_9") as run:
        raise ConnectionError("connection refused")
    assert run.result["dlq_task_id"] == "wf_9"
    assert await dlq.get_task("wf_9") is not None


# ---------------------------------------------------------------------- the processor


class Config:
    dlq_enabled, dlq_retry_processor_enabled, dlq_retry_interval_seconds = True, True, 10


async def test_the_processor_runs_the_apps_own_workflow(users, dlq, clock):
    users.config = Config()
    await users.dlq_integration.start_dlq_processor()
    assert (await dlq.get_statistics())["is_processor_running"]
    await users.dlq_integration.stop_dlq_processor()
    assert not (await dlq.get_statistics())["is_processor_running"]


@pytest.mark.parametrize("option", ["dlq_enabled", "dlq_retry_processor_enabled"])
async def test_a_disabled_processor_does_not_start_and_says_so(users, dlq, option, caplog):
    users.config = Config()
    setattr(users.config, option, False)
    with caplog.at_level("INFO"):
        await users.dlq_integration.start_dlq_processor()
    assert "disabled" in caplog.text
    assert not (await dlq.get_statistics())["is_processor_running"]


async def test_stopping_what_is_disabled_does_nothing_and_says_so(users, caplog):
    users.config = Config()
    users.config.dlq_retry_processor_enabled = False
    with caplog.at_level("INFO"):
        await users.dlq_integration.stop_dlq_processor()
    assert "disabled" in caplog.text


async def test_with_the_queue_disabled_nothing_is_enqueued_and_the_workflows_error_is_raised(users, dlq):
    users.config = Config()
    users.config.dlq_enabled = False
    with pytest.raises(ConnectionError):
        await users.dlq_integration.execute_with_dlq(TASK, "llamaindex")
    assert await dlq.list_tasks() == []


async def test_neither_logs_nor_facts_nor_the_observability_object_show_a_task(app, clock, caplog):
    told = []

    class Manager:
        def log_info(self, message, *, attributes):
            told.append((message, attributes))

        log_error = log_info

    caplog.set_level("DEBUG", logger="redrive")
    app.hub.listen(told.append)
    app.hub.listen(log_facts)
    dlq = DeadLetterQueue(store=app, observability_manager=Manager())
    hidden = "hunter2"
    task, metadata = {"adapter": "bank", "password": hidden}, {"token": hidden}
    await dlq.enqueue("wf_1", task, [f"/repo/{hidden}"], "Connection timeout", "immediate", 1, metadata)
    clock.advance(MINUTE)
    await dlq.run_cycle(failing())
    await dlq.archive_task("wf_1")
    assert len(told) > 4
    assert hidden not in str(told) + caplog.text
