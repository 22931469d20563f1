"""
An exactly-once consumer in a process of its own, which a test kills or stops.

Each record that is not bad has one output in the topic's `.out`. Usage:
`python -m tests.sources.kafka.exact BOOTSTRAP TOPIC GROUP WANTED`: it ends once WANTED offsets
are committed, or by the failpoint that the environment arms.
"""

from __future__ import annotations

import asyncio
import sys

from tests.sources.kafka.crashing import _committed

from redrive import Reject
from redrive.sources.kafka import ExecutionConfig, KafkaConfig, Output, ParallelConsumer


async def main(bootstrap: str, topic: str, group: str, wanted: int) -> None:
    async def worker(record):
        if int(record.value) % 10 == 3:
            raise Reject("bad")
        await asyncio.sleep(0.005)  # so that it takes several transactions
        return Output(topic=f"{topic}.out", value=record.value, key=record.key)

    consumer = ParallelConsumer(
        [topic], worker, group=group,
        execution=ExecutionConfig(retry_backoff_ms=1, retry_jitter_ms=0, max_in_flight=10),
        kafka=KafkaConfig(
            bootstrap_servers=bootstrap, commit_interval_ms=20, session_timeout_ms=3000, poll_batch_size=50,
            exactly_once=True, transaction_timeout_ms=2000,
            settings={"heartbeat.interval.ms": 200, "max.poll.interval.ms": 5000},
        ),
    )  # fmt: skip
    task = asyncio.create_task(consumer.run())
    while not task.done() and _committed(consumer) < wanted:  # noqa: ASYNC110 - its book is kept by another thread
        await asyncio.sleep(0.01)
    consumer.stop()
    await task


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], int(sys.argv[4])))
