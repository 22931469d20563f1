from __future__ import annotations

import asyncio
import urllib.request

from prometheus_client.parser import text_string_to_metric_families
from tests.sources.kafka.stage import running, until

from redrive.errors import Reject
from redrive.sources.kafka import ParallelConsumer
from redrive.sources.kafka.health import Counts
from redrive.sources.kafka.metrics import KAFKA_METRICS, attempts
from redrive.sources.kafka.prometheus import serve


async def scrape(page):
    def fetch():
        with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/metrics", timeout=60) as answer:
            return answer.read().decode()

    families = text_string_to_metric_families(await asyncio.to_thread(fetch))
    return {(one.name, *sorted(one.labels.values())): one.value for family in families for one in family.samples}


def test_records_are_counted_by_how_many_tries_they_took():
    counts = Counts(processed=7, failed=1)
    counts.again.update({2: 2, 3: 1, 12: 1})  # so four of eight took one

    buckets, total = attempts(counts)

    assert buckets == [("1.0", 4), ("2.0", 6), ("3.0", 7), ("5.0", 7), ("10.0", 7), ("+Inf", 8)]
    assert total == 4 + 2 * 2 + 3 + 12


async def test_a_consumer_that_has_not_run_shows_zeros():
    page = serve(ParallelConsumer(["orders"], print, group="shipping"), port=0)
    try:
        found = await scrape(page)
    finally:
        page.close()

    assert found["redrive_kafka_processed_total", "shipping"] == 0
    assert found["redrive_kafka_health", "green", "shipping"] == 1


async def test_a_scrape_tells_what_the_consumer_did_and_where_its_partitions_stand(stage):
    async def work(record):
        if record.value == b"bad":
            raise Reject("no such order")
        if record.value == b"shaky" and record.attempt == 1:
            raise ValueError("once")

    stage.create(partitions=2)
    stage.produce({"value": value} for value in (b"good", b"shaky", b"bad", b"good"))
    consumer = stage.consumer(work)
    page = serve(consumer, port=0)

    def seen():
        return consumer.counts.dlq_published == 1 and sum(each.lag or 0 for each in consumer.partitions) == 0

    try:
        async with running(consumer):
            await until(lambda: consumer.counts.processed == 3 and seen())
            found = await scrape(page)
    finally:
        page.close()

    def of(name):
        return sum(value for key, value in found.items() if key[0] == f"redrive_kafka_{name}")

    assert (of("received_total"), of("skipped_total")) == (4, 0)  # the ends of both partitions are no records
    assert (of("processed_total"), of("failed_total"), of("retries_total")) == (3, 1, 1)
    assert (of("dlq_published_total"), of("dlq_pending"), of("dlq_pending_age_seconds")) == (1, 0, 0)
    assert (of("attempts_count"), of("attempts_sum")) == (4, 5)
    assert (of("lag"), of("in_flight"), of("gaps"), of("paused"), of("halted")) == (0, 0, 0, 0, 0)
    assert len([key for key in found if key[0] == "redrive_kafka_lag"]) == 2
    bare = {name.removesuffix(suffix) for name, *_ in found for suffix in ("", "_count")}
    assert {metric.name for metric in KAFKA_METRICS} - bare == set()


async def test_what_was_skipped_is_counted_also_after_its_partition_has_gone(stage):
    stage.create()
    stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(50)])
    began = []

    async def worker(record):
        began.append(record.offset)
        if record.offset == 0:
            await asyncio.Event().wait()

    for round_ in (1, 2):
        consumer = stage.consumer(worker, execution={"shutdown_drain_timeout_ms": 50})
        async with running(consumer):
            await until(lambda round_=round_: began.count(0) == round_ and len(set(began)) == 50)
            await until(lambda consumer=consumer: consumer.counts.received >= 50)
    assert consumer.counts.skipped == 49
