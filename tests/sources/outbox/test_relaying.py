"""Letters to an HTTP endpoint: a real server answers."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from redrive import Redrive, RetryPolicy
from redrive.errors import SettingsError
from redrive.sources.outbox import HttpRelay


class Endpoint:
    """A partner's server: answers as it is told, and remembers what it was sent."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.heard: list[tuple[dict[str, str], bytes]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.heard.append((dict(self.headers), body))
                status, headers = endpoint.answers.pop(0) if endpoint.answers else (204, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_given) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/events"


@pytest.fixture
def endpoint():
    made = Endpoint()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


async def relayed(url: str, payload=b"{}", *, attempts: int = 1, **options):
    """Send one letter through a relay, and return what became of it."""
    async with Redrive("memory://") as app:
        app.publisher("order.paid", HttpRelay(url, timeout=60), policy=RetryPolicy.immediate(max_attempts=attempts))
        receipt = await app.enqueue("order.paid", payload, **options)
        await app.run(until_idle=True, signals=False)
        return await app.desk.show(receipt.id)


async def test_a_letter_arrives_as_it_is_with_its_key(endpoint):
    letter = await relayed(endpoint.url, b"\x00\xff", idempotency_key="order-17")
    assert letter.status == "delivered"
    [(headers, body)] = endpoint.heard
    assert body == b"\x00\xff"
    assert headers["Idempotency-Key"] == "order-17"
    assert (headers["Redrive-Id"], headers["Redrive-Kind"], headers["Redrive-Attempt"]) == (
        letter.id,
        "order.paid",
        "1",
    )
    assert headers["Content-Type"] == "application/octet-stream"


async def test_without_a_key_the_id_is_the_key_and_every_try_has_the_same(endpoint):
    endpoint.answers = [(503, {})]
    letter = await relayed(endpoint.url, {"n": 1}, attempts=2)
    assert letter.status == "delivered"
    assert [headers["Idempotency-Key"] for headers, _ in endpoint.heard] == [letter.id] * 2
    assert [headers["Redrive-Attempt"] for headers, _ in endpoint.heard] == ["1", "2"]


async def test_a_key_that_no_header_can_hold_is_encoded(endpoint):
    await relayed(endpoint.url, idempotency_key="a\r\nInjected: yes é \ud800 100%")
    [(headers, _)] = endpoint.heard
    assert headers["Idempotency-Key"] == "a%0D%0AInjected: yes %C3%A9 %ED%A0%80 100%25"
    assert "Injected" not in headers


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422])
async def test_an_answer_that_says_never_makes_a_dead_letter_at_once(endpoint, status):
    endpoint.answers = [(status, {})]
    letter = await relayed(endpoint.url, attempts=5)
    assert (letter.status, letter.attempts) == ("failed", 1)
    assert f"HTTP status {status}" in letter.tries[0].rule


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504])
async def test_an_answer_that_says_later_is_tried_again(endpoint, status):
    endpoint.answers = [(status, {})]
    letter = await relayed(endpoint.url, attempts=5)
    assert (letter.status, letter.attempts) == ("delivered", 2)


async def test_the_endpoint_says_how_long_to_wait(endpoint):
    endpoint.answers = [(429, {"Retry-After": "120"})]
    async with Redrive("memory://") as app:
        app.publisher("order.paid", HttpRelay(endpoint.url), policy=RetryPolicy.immediate())
        receipt = await app.enqueue("order.paid", 17)
        parts = app.parts()
        while not (await app.desk.show(receipt.id)).tries:
            await parts.processor.tick()
            await parts.worker._wait(0.01)
        letter = await app.desk.show(receipt.id)
    assert letter.tries[0].delay >= 120


async def test_a_redirect_is_no_confirmation(endpoint):
    endpoint.answers = [(302, {"Location": endpoint.url})]
    letter = await relayed(endpoint.url)
    assert letter.status == "failed"
    assert len(endpoint.heard) == 1


async def test_an_endpoint_that_is_away_or_silent_is_tried_again():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        refused = await relayed(url, attempts=2)
        silent.listen()
        async with Redrive("memory://") as app:
            app.publisher("order.paid", HttpRelay(url, timeout=0.05), policy=RetryPolicy.immediate(max_attempts=2))
            receipt = await app.enqueue("order.paid", 17)
            await app.run(until_idle=True, signals=False)
            late = await app.desk.show(receipt.id)
    assert (refused.attempts, refused.category) == (2, "network")
    assert (late.attempts, late.category) == (2, "network")


def test_what_is_no_endpoint_is_refused():
    with pytest.raises(SettingsError, match="must be like https"):
        HttpRelay("file:///etc/passwd")
