"""A webhook's way, seen by OpenTelemetry: a real request in, a real request out."""

from __future__ import annotations

from opentelemetry.trace import SpanKind
from tests.signals.otel.seen import Seen, is_child, links, traceparent
from tests.sources.webhook.conftest import KEY
from tests.sources.webhook.forwarding.destination import answer, destination
from tests.sources.webhook.serving.running import request, running, status, talk, until

from redrive import Redrive, RetryPolicy
from redrive.sources.webhook import Inbox, Source
from redrive.sources.webhook.signatures import providers

SENT = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


def lines(pairs):
    return [f"{name.decode()}: {value.decode()}" for name, value in pairs]


async def test_one_trace_from_the_sender_through_the_inbox_to_the_destination(tmp_path):
    seen = Seen()
    app = Redrive(f"sqlite:///{tmp_path}/inbox.db", tracing=seen.tracing)
    async with destination() as there:
        there.answers = [answer(503), answer(200)]
        inbox = Inbox(app, [Source.github(insecure=True, forward={"url": there.url, "headers": True})])
        app.handler_defaults("github", policy=RetryPolicy(first=0.0, cap=0.0))
        async with running(inbox) as (public, _):
            sent = request("/hooks/github", b"{}", f"traceparent: {SENT}", "tracestate: vendor=1")
            assert status(await talk(public, sent)) == 202
            await until(lambda: len(there.got) == 2 and len(seen.spans("handle")) == 2)
            letter = await app.store.get(seen.one("enqueue").attributes["messaging.message.id"])
    received, enqueued, requests = seen.one("receive"), seen.one("enqueue"), seen.spans("POST")
    assert f"{received.get_span_context().trace_id:032x}" == "ab" * 16
    assert f"{received.parent.span_id:016x}" == "cd" * 8
    assert received.kind is SpanKind.SERVER
    assert received.attributes["http.response.status_code"] == 202
    assert is_child(enqueued, received)
    assert all(is_child(handled, enqueued) for handled in seen.spans("handle"))
    assert all(is_child(out, handled) for out, handled in zip(requests, seen.spans("handle"), strict=True))
    assert [out.attributes["http.response.status_code"] for out in requests] == [503, 200]
    assert [out.attributes.get("error.type") for out in requests] == ["503", None]
    assert [got.header("traceparent") for got in there.got] == [traceparent(out) for out in requests]
    assert [got.header("tracestate") for got in there.got] == ["vendor=1"] * 2
    assert dict(letter.headers)["traceparent"] == SENT.encode()
    assert sum(point.count for point in seen.metrics()["http.client.request.duration"]) == 2


async def test_a_request_whose_signature_does_not_hold_makes_no_span():
    seen = Seen()
    app = Redrive("memory://", tracing=seen.tracing)
    inbox = Inbox(app, [Source.github(secrets=["env:HOOK_SECRET"])], workers="elsewhere")
    async with running(inbox) as (public, _):
        assert status(await talk(public, request("/hooks/github", b"{}", f"traceparent: {SENT}"))) == 401
        assert seen.spans() == []
        signed = lines(providers.GITHUB.sign(KEY, 0, b"{}"))
        assert status(await talk(public, request("/hooks/github", b"{}", *signed))) == 202
    assert seen.one("receive").parent is None


async def test_a_replayed_webhook_links_to_the_trace_that_its_sender_began():
    seen = Seen()
    app = Redrive("memory://", tracing=seen.tracing)
    inbox = Inbox(app, [Source.github(insecure=True)])
    broken = True

    @app.handler("github", policy=RetryPolicy(max_attempts=1))
    async def handle(payload: bytes) -> None:
        if broken:
            raise ConnectionError

    async with running(inbox) as (public, _):
        await talk(public, request("/hooks/github", b"{}", f"traceparent: {SENT}"))
        await until(lambda: len(seen.spans("settle")) == 1)
        broken = False
        await app.desk.replay(seen.one("enqueue").attributes["messaging.message.id"], reason="fixed")
        await until(lambda: len(seen.spans("handle")) == 2)
    again = seen.spans("handle")[1]
    assert again.parent is None
    assert links(again) == [seen.one("enqueue").get_span_context().span_id]
    assert f"{again.links[0].context.trace_id:032x}" == "ab" * 16


async def test_the_kept_trace_is_sent_on_by_a_process_that_does_not_trace():
    async with destination() as there:
        app = Redrive("memory://")
        inbox = Inbox(app, [Source.github(insecure=True, forward=there.url)])
        async with running(inbox):
            await app.enqueue("github", b"{}", queue="inbox.github", metadata={"traceparent": SENT})
            await until(lambda: there.got)
    assert there.got[0].header("traceparent") == SENT
