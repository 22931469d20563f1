"""
A process that retries tasks until it is killed: `python -m tests.sources.workflow.member URL`.

It says "ready" once Python has imported everything, and begins when it is sent a line: how long a process takes to
start then decides nothing. It ends when its standard input does, so that it does not outlive the test.
"""

from __future__ import annotations

import asyncio
import sys

from redrive import Redrive
from redrive.workflow import DeadLetterQueue

LEASE, SWEEP, INTERVAL = 1.0, 0.2, 0.05  # seconds


async def callback(task: dict[str, int], _repos: list[str]) -> None:
    """Fail every tenth task always."""
    await asyncio.sleep(0.04)
    if task["n"] % 10 == 0:
        raise ConnectionError("connection refused")


async def main(url: str) -> None:
    print("ready", flush=True)
    if not await asyncio.to_thread(sys.stdin.readline):
        return
    app = Redrive(url, lease_seconds=LEASE, sweep_seconds=SWEEP)
    dlq = DeadLetterQueue(store=app, concurrency=8)
    await dlq.start_retry_processor(callback, INTERVAL)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
