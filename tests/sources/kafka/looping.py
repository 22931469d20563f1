"""
A consumer in a process of its own that dies of a poisonous record. Usage:
`python -m tests.sources.kafka.looping BOOTSTRAP TOPIC GROUP WANTED findable|closure`: it ends once WANTED
offsets are committed. Its worker can be found by a child process, or not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from tests.sources.kafka.crashing import _committed

from redrive.sources.kafka import ExecutionConfig, KafkaConfig, ParallelConsumer


async def findable(record):
    if record.value == b"poison":
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.5 if record.attempt == 1 and record.value == b"slow" else 0)


async def main(bootstrap: str, topic: str, group: str, wanted: int, kind: str) -> None:
    async def closure(record):
        await findable(record)

    consumer = ParallelConsumer(
        [topic], findable if kind == "findable" else closure, group=group, execution=ExecutionConfig(),
        kafka=KafkaConfig(
            bootstrap_servers=bootstrap, commit_interval_ms=20, session_timeout_ms=2000,
            settings={"heartbeat.interval.ms": 200},
        ),
    )  # fmt: skip
    task = asyncio.create_task(consumer.run())
    while not task.done() and _committed(consumer) < wanted:  # noqa: ASYNC110 - its book is kept by another thread
        await asyncio.sleep(0.01)
    consumer.stop()
    await task


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], int(sys.argv[4]), sys.argv[5]))
