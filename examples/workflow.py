"""
A workflow that fails, waits in the queue, and heals: enqueue, look, retry, statistics.

Run it: `python workflow.py`. It writes its tasks into workflow.db in this folder; nothing else is needed.
"""

import asyncio

from redrive.workflow import DeadLetterQueue, create_dlq_integration


class Sweeper:
    """An app whose workflow needs a model server, which is away at first."""

    def __init__(self) -> None:
        self.dlq = DeadLetterQueue(store="sqlite:///workflow.db")
        self.dlq_integration = create_dlq_integration(self)
        self.is_away = True

    async def execute_workflow_parallel(self, task: dict, adapter_name: str, repos: list[str]) -> dict:
        if self.is_away:
            raise ConnectionError(f"{adapter_name} is away")
        return {"status": "completed", "type": task["type"], "repos": len(repos)}


async def main() -> None:
    app = Sweeper()
    failed = await app.dlq_integration.execute_with_dlq({"type": "code_sweep"}, "llamaindex", ["/path/to/repo"])
    print(f"failed: {failed['error']}; kept with policy {failed['retry_policy']}")

    task = await app.dlq.get_task(failed["dlq_task_id"])
    print(f"{task.status}, category {task.error_category}, next retry in {task.next_retry_at - task.failed_at}")

    app.is_away = False
    healed = await app.dlq.retry_task(
        task.task_id,
        callback=lambda task, repos: app.execute_workflow_parallel(task, task["adapter"], repos),
    )
    print(f"retried: success is {healed['success']}, result {healed['result']}")
    print((await app.dlq.get_statistics())["lifetime_stats"])
    await app.dlq.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
