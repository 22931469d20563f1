"""What a scrape shows while something stands still, and that it is gone once it goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.servers.kafka import Broker
from tests.servers.ports import free_port
from tests.sources.kafka.stage import LIMIT, Stage, running, until

from redrive.errors import Reject
from redrive.sources.kafka.prometheus import serve

ROOT = Path(__file__).parents[4]
PATIENT = int(LIMIT * 2000)  # ms that a worker may wait: longer than any of these tests


class Scrapes:
    """Looks at a page of metrics until it shows what is wanted."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.seen: dict[tuple[str, str], float] = {}

    def __getitem__(self, name: str) -> float:
        """The value of a metric as last seen, of all partitions together."""
        return sum(value for (each, _), value in self.seen.items() if each == f"redrive_kafka_{name}")

    def of(self, name: str, label: str) -> float:
        """The value of the one with a *label*: a partition, a status."""
        return self.seen.get((f"redrive_kafka_{name}", label), -1.0)

    async def show(self, wanted) -> None:
        """Wait until a scrape shows what is *wanted* of this."""

        def look():
            self._look()
            return wanted(self)

        await until(look)

    def _look(self) -> None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=LIMIT) as answer:
                text = answer.read().decode()
        except OSError:  # nobody listens yet
            return
        samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
        self.seen = {(one.name, one.labels.get("partition") or one.labels.get("status", "")): one.value
                     for one in samples}  # fmt: skip


@contextmanager
def scraped(consumer):
    page = serve(consumer, port=0)
    try:
        yield Scrapes(page.port)
    finally:
        page.close()


def stands_still(found):
    """Whether one of ten records is stuck, and the nine behind it are done."""
    return (
        (found["processed_total"], found["in_flight"], found["gaps"], found["lag"]) == (9, 1, 1, 10)
        and found["watermark_age_seconds"] > 0
    )  # fmt: skip


async def test_a_record_that_is_stuck_shows_as_age_of_the_watermark_a_gap_lag_and_in_flight(stage):
    stage.create()
    stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(10)])
    gate = asyncio.Event()

    async def worker(record):
        if record.offset == 0:
            await gate.wait()

    consumer = stage.consumer(worker, execution={"task_timeout_ms": PATIENT})
    with scraped(consumer) as found:
        async with running(consumer):
            await found.show(stands_still)
            age = found["watermark_age_seconds"]
            await found.show(lambda found: found["watermark_age_seconds"] > age)
            assert consumer.counts.in_flight == 1
            gate.set()
            await found.show(lambda found: (found["processed_total"], found["lag"], found["gaps"]) == (10, 0, 0))
            await found.show(lambda found: (found["in_flight"], found["watermark_age_seconds"]) == (0, 0))


def is_halted(found):
    """Whether the only dead letter waits to be taken, and partition 1 with it."""
    return (
        (found["failed_total"], found["dlq_published_total"], found["dlq_pending"]) == (1, 0, 1)
        and (found["halted"], found["paused"], found.of("halted", "1"), found.of("health", "red")) == (1, 1, 1, 1)
        and found["dlq_failures_total"] >= 2
        and found["dlq_pending_age_seconds"] > 0
    )


def goes_on(found):
    """Whether it was taken."""
    return (
        (found["dlq_published_total"], found["dlq_pending"], found["dlq_pending_age_seconds"]) == (1, 0, 0)
        and (found["halted"], found["paused"], found.of("health", "green")) == (0, 0, 1)
    )  # fmt: skip


async def test_a_missing_dead_letter_topic_shows_as_pending_with_its_age_as_failures_and_as_halted(stage):
    async def rejects(record):
        raise Reject("never")

    stage.create(partitions=2)
    stage.produce([{"value": b"bad", "partition": 1}])
    consumer = stage.consumer(rejects, dlq_create_topics=False, dlq_flush_timeout_ms=300, execution={"max_retries": 2})
    with scraped(consumer) as found:
        async with running(consumer):
            await found.show(is_halted)
            age = found["dlq_pending_age_seconds"]
            await found.show(lambda found: found["dlq_pending_age_seconds"] > age)
            stage.create(topic=stage.dlq)
            await found.show(goes_on)


async def test_a_partition_that_has_enough_to_do_shows_as_paused_until_it_has_not(stage):
    stage.create(partitions=2)
    stage.produce([{"value": b"x", "key": b"k", "partition": 1} for _ in range(200)])
    gate = asyncio.Event()

    async def worker(_record):
        await gate.wait()

    consumer = stage.consumer(worker, queue_max_messages=10, execution={"task_timeout_ms": PATIENT})
    with scraped(consumer) as found:
        async with running(consumer):
            await found.show(lambda found: (found.of("paused", "0"), found.of("paused", "1")) == (0, 1))
            assert consumer.counts.paused == 1
            gate.set()
            await found.show(lambda found: (found["processed_total"], found["paused"]) == (200, 0))


@pytest.mark.slow
async def test_commits_that_the_broker_refuses_are_counted(request):
    with (
        Broker(offset_metadata_max_bytes=8) as broker,  # a consumer writes more than that, until it is refused
        closing(Stage(broker.bootstrap, request.node.name)) as stage,
    ):
        stage.create()
        stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(300)])
        gate = asyncio.Event()

        async def worker(record):
            if record.offset == 0 or record.offset % 7 % 2:
                await gate.wait()

        consumer = stage.consumer(worker, execution={"task_timeout_ms": PATIENT})
        with scraped(consumer) as found:
            async with running(consumer):
                await found.show(lambda found: found["commit_failures_total"] > 0)
                gate.set()
                await until(lambda: stage.committed() == 300)
                await found.show(lambda found: found.of("health", "green") == 1)


SHOP = """
import asyncio

async def ship(record):
    if record.offset == 0:
        await asyncio.Event().wait()
"""


async def test_the_command_shows_its_metrics_while_it_consumes(stage, tmp_path):
    stage.create()
    stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(10)])
    (tmp_path / "shop.py").write_text(SHOP)
    port = free_port()
    words = ["shop:ship", "--topic", stage.topic, "--group", stage.group, "--metrics-port", str(port)]
    command = [sys.executable, "-m", "redrive.cli", "kafka", "consume", *words, "--servers", stage.bootstrap]
    env = {"PYTHONPATH": str(ROOT / "src"), "EXECUTION_TASK_TIMEOUT_MS": str(PATIENT)}
    env |= {"EXECUTION_SHUTDOWN_DRAIN_TIMEOUT_MS": "100"}
    with subprocess.Popen(command, cwd=tmp_path, env=os.environ | env, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
        try:
            await Scrapes(port).show(stands_still)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
