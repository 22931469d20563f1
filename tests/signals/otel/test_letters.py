"""A letter's way, seen by OpenTelemetry: on every store, with every engine."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from tests.signals.otel.seen import Seen, is_child, links, traceparent
from tests.stores.conftest import server_url

from redrive import Letter, Redrive, Reject, RetryPolicy
from redrive.signals.otel import continued
from redrive.stores.memory import MemoryStore

ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: Any, tmp_path: Any) -> str:
    if request.param == "postgres":
        return f"{server_url()}?schema=otel_{tmp_path.name.replace('-', '_')[-40:]}"
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/letters.db"


async def test_a_handler_runs_in_a_child_of_the_span_that_enqueued_its_letter(url: str, seen: Seen):
    app = Redrive(url, tracing=seen.tracing)
    inside: list[int] = []

    @app.handler("order.paid", queue="orders")
    async def paid(letter: Letter) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)
        assert letter.metadata["traceparent"] == traceparent(enqueued)
        assert letter.headers == (("a", b"1"),)

    async with app:
        with seen.tracer.start_as_current_span("request"):
            receipt = await app.enqueue("order.paid", {}, headers=[("a", b"1")])
        enqueued = seen.one("enqueue")
        await app.run(until_idle=True)
    request, handled = seen.one("request"), seen.one("handle")
    assert is_child(enqueued, request)
    assert is_child(handled, enqueued)
    assert inside == [handled.get_span_context().span_id]
    assert (enqueued.name, enqueued.kind) == ("enqueue orders", SpanKind.PRODUCER)
    assert (handled.name, handled.kind) == ("handle orders", SpanKind.CONSUMER)
    assert dict(handled.attributes or {}) == {
        "messaging.system": "redrive",
        "messaging.operation.name": "handle",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.message.id": receipt.id,
        "redrive.queue": "orders",
        "redrive.kind": "order.paid",
        "redrive.attempt": 1,
        "redrive.outcome": "succeeded",
    }
    for name in ("claim", "settle"):
        span = seen.one(name)
        assert (span.kind, span.parent, links(span)) == (SpanKind.CLIENT, None, [enqueued.get_span_context().span_id])
        assert span.attributes["messaging.batch.message_count"] == 1


async def test_a_failure_shows_its_category_and_type_and_what_became_of_the_letter(url: str, seen: Seen):
    app = Redrive(url, tracing=seen.tracing)

    @app.handler("order.paid")
    async def paid(letter: Letter) -> None:
        raise Reject("no such customer")

    async with app:
        receipt = await app.enqueue("order.paid", {})
        await app.run(until_idle=True)
    handled, (event,) = seen.one("handle"), seen.one("settle").events
    assert handled.status.status_code is StatusCode.ERROR
    assert handled.status.description is None
    assert not handled.events
    assert {name: handled.attributes[f"redrive.{name}"] for name in ("outcome", "category")} == {
        "outcome": "failed",
        "category": "permanent",
    }
    assert handled.attributes["error.type"].endswith("Reject")
    assert event.attributes["messaging.message.id"] == receipt.id
    assert (event.attributes["redrive.status"], event.attributes["redrive.category"]) == ("failed", "permanent")


async def test_a_replay_begins_a_trace_of_its_own_with_a_link_to_the_first(url: str, seen: Seen):
    app = Redrive(url, tracing=seen.tracing)
    broken = True

    @app.handler("order.paid", policy=ONCE)
    async def paid(letter: Letter) -> None:
        if broken:
            raise ConnectionError

    async with app:
        receipt = await app.enqueue("order.paid", {})
        await app.run(until_idle=True)
        broken = False
        await app.desk.replay(receipt.id, reason="fixed")
        await app.run(until_idle=True)
    first, again = seen.spans("handle")
    enqueued = seen.one("enqueue").get_span_context()
    assert is_child(first, seen.one("enqueue"))
    assert again.parent is None
    assert again.get_span_context().trace_id != enqueued.trace_id
    assert links(again) == [enqueued.span_id]


async def test_tries_of_one_cycle_belong_to_one_trace(seen: Seen):
    app = Redrive("memory://", tracing=seen.tracing)
    tries: list[int] = []

    @app.handler("flaky", policy=RetryPolicy(max_attempts=2, first=0.0, cap=0.0))
    async def flaky(letter: Letter) -> None:
        tries.append(letter.attempts)
        if len(tries) == 1:
            raise ConnectionError

    async with app:
        await app.enqueue("flaky", {})
        await app.run(until_idle=True)
    assert [span.attributes["redrive.attempt"] for span in seen.spans("handle")] == [1, 2]
    assert all(is_child(span, seen.one("enqueue")) for span in seen.spans("handle"))


async def test_a_letter_that_names_its_trace_keeps_it(seen: Seen):
    given = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    app = Redrive("memory://", tracing=seen.tracing)
    app.add_handler("a", lambda letter: None)
    async with app:
        await app.enqueue("a", {}, metadata={"traceparent": given, "tracestate": "vendor=1"})
        await app.run(until_idle=True)
    handled = seen.one("handle")
    assert f"{handled.get_span_context().trace_id:032x}" == "ab" * 16
    assert f"{handled.parent.span_id:016x}" == "cd" * 8
    assert handled.get_span_context().trace_state.to_header() == "vendor=1"


async def test_letters_of_one_call_share_the_span_that_enqueued_them(seen: Seen):
    app = Redrive("memory://", tracing=seen.tracing)
    app.add_handler("a", lambda letter: None)
    async with app:
        await app.enqueue_many([app.draft("a", number) for number in range(20)])
        await app.run(until_idle=True)
    enqueued = seen.one("enqueue")
    assert enqueued.attributes["messaging.batch.message_count"] == 20
    assert len(seen.spans("handle")) == 20
    assert all(is_child(span, enqueued) for span in seen.spans("handle"))


async def test_a_handler_in_a_thread_runs_in_its_span(seen: Seen):
    app = Redrive("memory://", tracing=seen.tracing)
    inside: set[int] = set()

    @app.handler("a")
    def handle(letter: Letter) -> None:
        inside.add(trace.get_current_span().get_span_context().span_id)

    async with app:
        await app.enqueue_many([app.draft("a", number) for number in range(100)])
        await app.run(until_idle=True)
    assert inside == {span.get_span_context().span_id for span in seen.spans("handle")}
    assert len(inside) == 100


def in_a_process(letter: Letter) -> None:
    """Fail unless the letter brought the span of its handler along."""
    with continued(letter):
        here = trace.get_current_span().get_span_context()
    if not here.is_valid:
        raise ValueError("no trace")
    if letter.payload == b'"die"':
        raise Reject


async def test_a_handler_in_a_process_has_a_span_that_its_letter_takes_along(seen: Seen):
    app = Redrive("memory://", tracing=seen.tracing)
    app.add_handler("a", in_a_process, engine="process", policy=ONCE)
    async with app:
        await app.enqueue_many([app.draft("a", "live"), app.draft("a", "die")])
        await app.run(until_idle=True)
    assert sorted(span.attributes["redrive.outcome"] for span in seen.spans("handle")) == ["failed", "succeeded"]


async def test_a_handler_that_times_out_has_a_span_that_says_so(seen: Seen):
    app = Redrive("memory://", tracing=seen.tracing)

    @app.handler("slow", timeout=0.01, policy=ONCE)
    async def slow(letter: Letter) -> None:
        await asyncio.Event().wait()

    async with app:
        await app.enqueue("slow", {})
        await app.run(until_idle=True)
    handled = seen.one("handle")
    assert (handled.attributes["redrive.outcome"], handled.attributes["error.type"]) == ("failed", "TimeoutError")


async def test_an_exporter_that_raises_stops_no_letter_and_complains_three_times(caplog: Any):
    class Broken(SpanProcessor):
        def on_start(self, *_given: Any, **_options: Any) -> None:
            raise RuntimeError("the collector is away")

        def on_end(self, *_given: Any, **_options: Any) -> None:
            raise RuntimeError("the collector is away")

    seen = Seen()
    seen.provider.add_span_processor(Broken())
    app, ran = Redrive("memory://", tracing=seen.tracing), []
    app.add_handler("a", ran.append)
    async with app:
        await app.enqueue_many([app.draft("a", number) for number in range(10)])
        await app.run(until_idle=True)
    assert len(ran) == 10
    assert len([line for line in caplog.messages if "redrive.tracing.failed" in line]) == 3
    assert "the collector is away" not in caplog.text


async def test_facts_and_durations_become_metrics(seen: Seen):
    app = Redrive("memory://", tracing=seen.tracing)
    app.add_handler("good", lambda letter: None, queue="q")

    @app.handler("bad", queue="q", policy=ONCE)
    async def bad(letter: Letter) -> None:
        raise Reject("no")

    async with app:
        await app.enqueue("good", {})
        await app.enqueue("bad", {})
        await app.run(until_idle=True)
    found = seen.metrics()
    assert [point.value for point in found["redrive.letters.enqueued"]] == [1, 1]
    (died,) = found["redrive.letters.died"]
    assert died.attributes["redrive.category"] == "permanent"
    assert sum(point.count for point in found["messaging.process.duration"]) == 2
    failed = [point for point in found["messaging.process.duration"] if "error.type" in point.attributes]
    assert [point.attributes["redrive.kind"] for point in failed] == ["bad"]
    operations = {
        point.attributes["messaging.operation.name"] for point in found["messaging.client.operation.duration"]
    }
    assert operations == {"enqueue", "claim", "settle"}


async def test_without_a_tracer_nothing_is_added_to_a_letter():
    app = Redrive("memory://")
    letters: list[Letter] = []

    @app.handler("a")
    async def keep(letter: Letter) -> None:
        letters.append(letter)

    async with app:
        await app.enqueue("a", {})
        await app.run(until_idle=True)
    assert app.tracing is None
    assert letters[0].metadata == {}


async def test_spans_of_a_letter_have_the_order_of_time(seen: Seen):
    app, before = Redrive("memory://", tracing=seen.tracing), time.time_ns()
    app.add_handler("a", lambda letter: None)
    async with app:
        await app.enqueue("a", {})
        await app.run(until_idle=True)
    for span in seen.spans():
        assert before - 1_000_000 <= span.start_time <= span.end_time <= time.time_ns()


def test_a_traced_store_promises_what_the_store_has_learned_since(seen: Seen):
    store = MemoryStore()
    traced = seen.tracing.watch(store)
    store.features = msgspec.structs.replace(store.features, search=not store.features.search)
    assert traced.features == store.features
