"""
One member of a consumer group in a process of its own, until it is killed.

Its worker writes down every record that it has handled (`partition offset key number`), in one
write; every tenth it rejects, every tenth it handles at the second try. Usage:
`python -m tests.torture.runs.brokers.kafka_member BOOTSTRAP TOPIC GROUP FILE PROTOCOL mortal|immortal`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from redrive import Reject
from redrive.sources.kafka import ExecutionConfig, KafkaConfig, ParallelConsumer, Record

DEAD, SECOND = 3, 7  # the last digit of what is rejected, and of what fails once


async def main(bootstrap: str, topic: str, group: str, path: str, protocol: Any, mortal: str) -> None:
    """Consume until killed, or asked to leave."""
    book = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def worker(record: Record) -> None:
        number = int(record.value or b"0")
        if number % 10 == DEAD:
            raise Reject("bad")
        if number % 10 == SECOND and record.attempt == 1:
            raise RuntimeError("later")
        await asyncio.sleep(0.002)
        os.write(book, b"%d %d %s %d\n" % (record.partition, record.offset, record.key or b"", number))

    # Quick to be missed, if it is to be killed; otherwise patient, so that only who leaves is gone.
    quick = {"session.timeout.ms": 1000, "heartbeat.interval.ms": 200} if mortal == "mortal" else {}
    consumer = ParallelConsumer(
        [topic],
        worker,
        group=group,
        execution=ExecutionConfig(retry_backoff_ms=1, retry_jitter_ms=0, max_revoke_grace_ms=1000 if quick else 30_000),
        kafka=KafkaConfig(
            bootstrap_servers=bootstrap,
            group_protocol=protocol,
            commit_interval_ms=20,
            poll_batch_size=50,
            queue_max_messages=300,
            dlq_flush_timeout_ms=60_000,  # one that is only late must not be written twice
            crash_loop_limit=0,  # kills at random say nothing of the records
            settings=quick,
        ),
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
    await consumer.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:7]))
