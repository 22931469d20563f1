"""Dead letters reach Sentry: the real SDK against an endpoint on the loopback that stands in for the ingest."""

from __future__ import annotations

import gzip
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

import pytest
import structlog

from redrive import Redrive, RetryPolicy
from redrive.errors import SettingsError

if find_spec("sentry_sdk") is None:
    if os.environ.get("CI"):
        pytest.fail("there is no sentry-sdk here: pip install 'redrive[sentry]'", pytrace=False)
    pytest.skip("there is no sentry-sdk here: pip install 'redrive[sentry]'", allow_module_level=True)

CARD = "4111-1111"


class Ingest:
    """Takes envelopes, as Sentry does; *gate* holds its answers back until it is set."""

    def __init__(self, status: int = 200) -> None:
        self.events: list[dict] = []
        self.bodies: list[bytes] = []
        self.gate, self.asked = threading.Event(), threading.Event()
        self.gate.set()
        ingest = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                ingest.take(body)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, body: bytes) -> None:
        self.asked.set()
        self.gate.wait(120)
        self.bodies.append(body)
        lines = body.split(b"\n")[1:]
        for header, item in zip(lines[::2], lines[1::2], strict=False):
            if header and json.loads(header).get("type") == "event":
                self.events.append(json.loads(item))

    @property
    def dsn(self) -> str:
        return f"http://key@127.0.0.1:{self.server.server_port}/1"

    def close(self) -> None:
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """What is looked at after closing must have been sent by then, however slow the machine."""
    monkeypatch.setattr("redrive.signals.sentry._PATIENCE", 60.0)


@pytest.fixture
def ingest():
    made = Ingest()
    yield made
    made.close()


def shop(dsn: str) -> Redrive:
    app = Redrive("memory://", sentry_dsn=dsn, release="1.4.2")

    @app.handler("order.created", policy=RetryPolicy.NEVER)
    async def on_order(order: dict) -> None:
        raise ConnectionError("the bank does not answer")

    return app


async def run(app: Redrive, letters: int = 1) -> int:
    ids = [(await app.enqueue("order.created", {"card": CARD}, origin="shop")).id for _ in range(letters)]
    await app.run(until_idle=True, signals=False)
    failed = await app.desk.ls("status:failed")
    assert {letter.id for letter in failed.letters} == set(ids)
    return len(failed.letters)


async def test_a_dead_letter_is_one_event_with_what_an_operator_needs_and_without_its_payload(ingest):
    app = shop(ingest.dsn)
    await run(app)
    [letter] = (await app.desk.ls("status:failed")).letters
    await app.close()

    [event] = ingest.events
    told = event["contexts"]["dead letter"]
    assert told["event_id"] == letter.id
    assert (told["event_type"], told["source"], told["target"]) == ("order.created", "shop", None)
    assert told["handler_name"] == "order.created"  # as in `event_handled`
    assert told["handler"] == app.handlers["order.created"].name
    assert (told["last_error"], told["attempts"]) == ("the bank does not answer", 1)
    assert event["fingerprint"] == ["redrive", letter.fingerprint]
    assert event["exception"]["values"][0]["type"] == letter.error_type
    assert (event["level"], event["release"]) == ("error", "1.4.2")
    assert event["tags"]["event_id"] == letter.id
    assert not any(CARD.encode() in body for body in ingest.bodies)


async def test_letters_that_fail_alike_share_a_fingerprint_and_each_has_its_event(ingest):
    app = shop(ingest.dsn)
    await run(app, letters=3)
    await app.close()
    assert len(ingest.events) == 3
    assert len({tuple(event["fingerprint"]) for event in ingest.events}) == 1


async def test_a_death_is_one_line_of_structlog_with_the_same_facts(ingest):
    app = shop(ingest.dsn)
    with structlog.testing.capture_logs() as lines:
        structlog.configure()
        try:
            await run(app)
        finally:
            structlog.reset_defaults()
    await app.close()
    [line] = [line for line in lines if line["event"] == "redrive.letter.died"]
    [event] = ingest.events
    told = event["contexts"]["dead letter"]
    assert (line["id"], line["kind"], line["origin"]) == (told["event_id"], told["event_type"], told["source"])
    assert (line["last_error"], line["attempts"]) == (told["last_error"], told["attempts"])


async def test_a_sentry_that_does_not_answer_holds_no_letter_up(ingest):
    ingest.gate.clear()
    app = shop(ingest.dsn)
    assert await run(app, letters=50) == 50
    assert ingest.asked.wait(120)
    assert ingest.bodies == []  # all letters are settled, and Sentry has not answered once
    ingest.gate.set()
    await app.close()


@pytest.mark.parametrize("dsn", ["refusing", "http://key@127.0.0.1:1/1"])
async def test_a_sentry_that_refuses_or_is_away_stops_nothing(dsn):
    refusing = Ingest(status=500) if dsn == "refusing" else None
    app = shop(refusing.dsn if refusing else dsn)
    assert await run(app, letters=5) == 5
    await app.close()
    if refusing:
        refusing.close()


async def test_an_application_that_has_sentry_already_reports_by_it_once_and_without_breadcrumbs(ingest):
    import sentry_sdk  # noqa: PLC0415 - only where it is installed

    with sentry_sdk.isolation_scope():
        sentry_sdk.init(dsn=ingest.dsn, environment="staging")
        try:
            sentry_sdk.set_tag("never", "here")
            sentry_sdk.add_breadcrumb(message=CARD)
            app = shop("sdk")
            await run(app)
            await app.close()
            sentry_sdk.flush(60)
        finally:
            sentry_sdk.get_client().close()
            sentry_sdk.get_global_scope().set_client(None)
    [event] = ingest.events  # and none of the line in the log
    assert (event["environment"], event["contexts"]["dead letter"]["event_type"]) == ("staging", "order.created")
    assert CARD not in json.dumps(event)


async def test_a_letter_that_is_retried_is_no_event(ingest):
    app = Redrive("memory://", sentry_dsn=ingest.dsn)

    @app.handler("order.created", policy=RetryPolicy.exponential(first=0.001, max_attempts=2, jitter="none"))
    async def on_order(letter_attempt: dict) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("once")

    tries: list[int] = []
    await app.enqueue("order.created", {})
    await app.run(until_idle=True, signals=False)
    await app.close()
    assert len(tries) == 2
    assert ingest.events == []


async def test_what_is_no_dsn_is_refused_when_the_app_is_opened():
    app = Redrive("memory://", sentry_dsn="not a dsn")
    with pytest.raises(SettingsError, match="sentry_dsn is no DSN"):
        await app.open()
