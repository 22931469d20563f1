"""
A consumer in a process of its own, which a test kills, stops or lets finish.

Its worker writes down every record that it handles, and rejects the bad ones. Usage:
`python -m tests.sources.kafka.crashing BOOTSTRAP TOPIC GROUP FILE WANTED`: it ends once
WANTED offsets are committed, or by the failpoint that the environment arms.
"""

from __future__ import annotations

import asyncio
import os
import sys

from redrive import Reject, failpoints
from redrive.sources.kafka import ExecutionConfig, KafkaConfig, ParallelConsumer


async def main(bootstrap: str, topic: str, group: str, path: str, wanted: int) -> None:
    book = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def worker(record):
        if int(record.value) % 10 == 3:
            raise Reject("bad")
        if int(record.value) % 10 == 7 and record.attempt == 1:
            raise RuntimeError("later")
        await asyncio.sleep(0)
        os.write(book, b"%s %s\n" % (record.key, record.value))

    # One that is armed is to die, and to be missed soon; the one that finishes may stall, and loses nothing by it.
    missed_after, poll = (3000, 5000) if failpoints.ACTIVE else (60_000, 120_000)
    consumer = ParallelConsumer(
        [topic], worker, group=group,
        execution=ExecutionConfig(retry_backoff_ms=1, retry_jitter_ms=0),
        kafka=KafkaConfig(
            bootstrap_servers=bootstrap, commit_interval_ms=20, session_timeout_ms=missed_after, poll_batch_size=50,
            settings={"heartbeat.interval.ms": 200, "max.poll.interval.ms": poll}, dlq_flush_timeout_ms=60_000,
        ),
    )  # fmt: skip
    task = asyncio.create_task(consumer.run())
    while not task.done() and _committed(consumer) < wanted:  # noqa: ASYNC110 - its book is kept by another thread
        await asyncio.sleep(0.01)
    consumer.stop()
    await task


def _committed(consumer: ParallelConsumer) -> int:
    poller = consumer._poller
    partitions = [] if poller is None else list(poller._partitions.all)
    return sum(max(partition.committed[0], 0) for partition in partitions)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5], int(sys.argv[5])))
