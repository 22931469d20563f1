"""
Senders of webhooks: one process, many connections, each with one request at a time.

Owns the bodies, their signatures, the connections that send them, the connections that are slow on purpose, and what
was answered how quickly. Every event has an id of its own. Knows no contender.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

BODY = 1_024  # bytes
SECRET = "a secret of the benchmark"  # noqa: S105 - it guards nothing
_KEY = SECRET.encode()
_FILL = b"x" * BODY
_HEAD = (
    b"POST /hooks/github HTTP/1.1\r\nHost: inbox\r\nContent-Type: application/json\r\nX-GitHub-Event: push\r\n"
    b"Content-Length: %d\r\nX-GitHub-Delivery: %d\r\nX-Hub-Signature-256: sha256=%s\r\n\r\n"
)
_DRIP = 0.5  # seconds between two bytes of a slow sender


def event(number: int) -> bytes:
    """Return the request that sends event *number*: a signed JSON object of BODY bytes."""
    start = b'{"idempotency_key": "%d", "event_type": "push", "payload": "' % number
    body = start + _FILL[: BODY - len(start) - 2] + b'"}'
    return _HEAD % (len(body), number, hmac.digest(_KEY, body, "sha256").hex().encode()) + body


@dataclass
class Load:
    """What *connections* senders did until *end*, by the clock of the event loop."""

    end: float
    most: int
    first: int = 1
    sent: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    over: asyncio.Future[None] | None = None
    open: int = 0

    def next(self) -> bytes | None:
        """Return the next request; None when it is time to end."""
        if self.sent >= self.most or time.perf_counter() >= self.end:
            return None
        self.sent += 1
        return event(self.first + self.sent)


class Sender(asyncio.Protocol):
    """One connection."""

    def __init__(self, load: Load) -> None:
        self._load, self._buffer, self._began = load, b"", 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._load.open += 1
        self._send()

    def _send(self) -> None:
        request = self._load.next()
        if request is None:
            self._transport.close()
            return
        self._began = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found or len(rest) < int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            return
        self._load.seconds.append(time.perf_counter() - self._began)
        self._load.statuses[int(head[9:12])] += 1
        self._buffer = b""
        self._send()

    def connection_lost(self, _error: Exception | None) -> None:
        self._load.open -= 1
        if self._load.open == 0 and self._load.over is not None and not self._load.over.done():
            self._load.over.set_result(None)


async def send(port: int, *, connections: int, seconds: float, most: int = 10**9, first: int = 0) -> dict[str, Any]:
    """Send for *seconds*, or *most* requests; return the rate, the latencies and the statuses."""
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    load = Load(end=began + seconds, most=most, first=first, over=loop.create_future())
    for _ in range(connections):
        await loop.create_connection(lambda: Sender(load), "127.0.0.1", port)
    assert load.over is not None
    await load.over
    took = time.perf_counter() - began
    found = sorted(load.seconds)
    return {
        "sent": load.sent,
        "statuses": dict(load.statuses),
        "rate": len(found) / took,
        "p50": found[len(found) // 2] * 1e3,
        "p99": found[len(found) * 99 // 100] * 1e3,
        "worst": found[-1] * 1e3,
    }


async def drip(port: int) -> None:
    """Send one request a byte at a time, for ever; a connection that is cut off is opened again."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            for byte in event(0):
                writer.write(bytes((byte,)))
                await writer.drain()
                await asyncio.sleep(_DRIP)
        except OSError:
            await asyncio.sleep(_DRIP)
