"""Tasks, callbacks and cycles for the tests of the workflow queue."""

from __future__ import annotations

from typing import Any

TASK = {"type": "code_sweep"}
REPOS = ["/path/to/repo"]
MINUTE = 60


async def enqueue(dlq, task_id: str = "wf_abc123", error: Any = "Connection timeout", **options):
    return await dlq.enqueue(task_id, TASK, REPOS, error, **options)


class Callback:
    """Fails as often as it is told, and remembers its calls."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes, self.calls = list(outcomes), []

    async def __call__(self, task: dict[str, Any], repos: list[str]) -> Any:
        self.calls.append((task, repos))
        outcome = self.outcomes.pop(0) if self.outcomes else {"status": "completed"}
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def failing(times: int = 1_000) -> Callback:
    return Callback(*[ConnectionError("connection refused")] * times)
