"""Metrics as Prometheus gets them: over HTTP, from an application at work."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.request

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from redrive import Redrive, Reject
from redrive.core.facts import BreakerOpened, Died
from redrive.core.letter import Category
from redrive.errors import SettingsError, StoreUnavailable
from redrive.signals.metrics import METRICS
from redrive.signals.prometheus import FactCounter, StoreCollector, serve
from redrive.stores.memory import MemoryStore


@pytest.fixture
def app() -> Redrive:
    app = Redrive("memory://")

    @app.handler("welcome", queue="mail")
    async def welcome(mail: dict) -> None:
        if mail.get("bad"):
            raise Reject("there is no such address")

    return app


Series = tuple[str, frozenset[str]]


def series(name: str, *values: str) -> Series:
    return name, frozenset(values)


async def scrape(port: int) -> dict[Series, float]:
    """Return every sample by its name and the values of its labels, as Prometheus reads them."""

    def fetch() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return answer.read().decode()

    text = await asyncio.to_thread(fetch)
    families = list(text_string_to_metric_families(text))
    return {series(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


async def test_a_scrape_tells_what_the_worker_did_and_what_the_store_holds(app):
    page = serve(app, port=0)
    try:
        await app.enqueue("welcome", {"to": 1}, idempotency_key="one")
        await app.enqueue("welcome", {"to": 1}, idempotency_key="one")
        await app.enqueue("welcome", {"bad": True})
        await app.run(until_idle=True, signals=False)
        seen = await scrape(page.port)
    finally:
        page.close()
    mail = ("mail", "welcome")
    assert seen[series("redrive_letters_enqueued_total", *mail)] == 2
    assert seen[series("redrive_letters_duplicate_total", *mail)] == 1
    assert seen[series("redrive_letters_delivered_total", *mail)] == 1
    assert seen[series("redrive_letters_died_total", *mail, "permanent", "Reject")] == 1
    assert seen[series("redrive_letters", *mail, "delivered")] == 1
    assert seen[series("redrive_letters", *mail, "failed")] == 1
    assert seen[series("redrive_workers_started_total")] == 1
    assert seen[series("redrive_store_up")] == 1
    assert seen[series("redrive_oldest_failed_timestamp_seconds")] > 0


async def test_only_metrics_of_the_table_are_served(app):
    page = serve(app, port=0)
    try:
        await app.enqueue("welcome", {})
        names = {name for name, _ in await scrape(page.port)}
    finally:
        page.close()
    parts = ("_bucket", "_count", "_sum", "_created")  # of histograms; and when a series began
    known = {metric.name for metric in METRICS}
    assert {name for name in names if name not in known and not name.endswith(parts)} == set()


async def test_a_store_alone_can_be_served():
    store = MemoryStore()
    await store.open()
    page = serve(store, port=0)
    try:
        seen = await scrape(page.port)
    finally:
        page.close()
    assert seen[series("redrive_store_up")] == 1
    assert series("redrive_letters_replayed_total") not in seen


async def test_a_closed_page_neither_serves_nor_counts(app):
    page = serve(app, port=0)
    port = page.port
    page.close()
    assert not app.hub.wants_routine
    with pytest.raises(OSError, match="refused"):
        await scrape(port)


async def test_a_port_that_is_taken_is_said_with_a_way_out(app):
    page = serve(app, port=0)
    try:
        with pytest.raises(
            SettingsError, match=r"cannot serve metrics on 127\.0\.0\.1.*set metrics_port to a free one"
        ):
            serve(app, port=page.port)
    finally:
        page.close()


class AwayStore(MemoryStore):
    """A store that cannot be reached."""

    async def tallies(self):
        raise StoreUnavailable("it is away")


class SilentStore(MemoryStore):
    """A store that never answers."""

    async def tallies(self):
        await asyncio.Event().wait()


@pytest.mark.parametrize("store", [AwayStore(), SilentStore()])
async def test_a_store_that_does_not_answer_is_down_and_not_empty(store):
    collector = StoreCollector(store, asyncio.get_running_loop(), patience=0.05)
    families = await asyncio.to_thread(lambda: list(collector.collect()))
    samples = [sample for family in families for sample in family.samples]
    assert [(sample.name, sample.value) for sample in samples] == [("redrive_store_up", 0)]


def test_hostile_names_and_many_of_them_cannot_break_the_page():
    registry = CollectorRegistry()
    count = FactCounter(registry)
    for n in range(500):
        count(BreakerOpened(breaker=f"\ud800\x00\n{n}", failures=1, successes=0, rest=1))
        count(
            Died(
                id=str(n),
                queue="q",
                kind="k",
                attempts=1,
                error_type=f"Error{n}",
                category=Category.PERMANENT,
                rule="r",
                fingerprint="f",
                why="terminal",
            )
        )
    [died] = [family for family in registry.collect() if family.name == "redrive_letters_died"]
    samples = [sample for sample in died.samples if sample.name == "redrive_letters_died_total"]
    assert len(samples) == 201
    assert sum(sample.value for sample in samples) == 500


def test_without_the_extra_the_way_out_is_said():
    code = """
import sys
sys.modules["prometheus_client"] = None
try:
    from redrive.signals.prometheus import serve
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("SettingsError ")
    assert "pip install 'redrive[prometheus]'" in done.stdout
