"""
Connections of senders, within bounds that uvicorn does not have.

Owns the deadline from a connection's first byte, or its opening, to the last byte of a request, the end of idle
connections, and the limits on what is read before an application sees it. Knows no source and no signature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_MUCH = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_SLACK = 65_536  # bytes of an address and of one read beside the headers
_FRAMING = 8  # bytes on the wire that one byte of a chunked body may take


def bounded(
    made_by: Callable[..., BoundedProtocol], *, seconds: float, max_headers: int, max_body: int
) -> Callable[..., BoundedProtocol]:
    """Return what makes a protocol for one connection: what *made_by* makes, with these limits."""

    def make(*given: Any, **named: Any) -> BoundedProtocol:
        made = made_by(*given, **named)
        made.seconds, made.most_head = seconds, max_headers + _SLACK
        made.most = made.most_head + _FRAMING * max_body
        return made

    return make


class BoundedProtocol(HttpToolsProtocol):
    """One connection; `bounded` sets its limits."""

    seconds = 10.0
    most_head = most = _SLACK  # bytes
    _timer: asyncio.TimerHandle | None = None
    _look_at = 0.0  # when the timer looks, by the loop's clock
    _due: float | None = None  # when the request that arrives must be complete, or the next one must have begun
    _is_idle = False  # no byte of the next request is here
    _received = 0  # bytes since the request that arrives began
    _in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._disarm()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless it is too much."""
        self._arm()
        self._received += len(data)
        super().data_received(data)
        if self._in_head and self._received > self.most_head:
            self._end(_TOO_LARGE)
        elif self._received > self.most:
            self._end(_TOO_MUCH)

    def on_message_begin(self) -> None:
        """Begin to count; a request that is pipelined has a deadline of its own."""
        super().on_message_begin()
        self._in_head, self._received = True, 0
        self._arm()

    def on_headers_complete(self) -> None:
        """Go on with the body."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Go on without a deadline."""
        self.stop_clock()
        super().on_message_complete()

    def stop_clock(self) -> None:
        """Wait no longer for the request: what takes time now is ours."""
        self._disarm()
        self._in_head, self._received = True, 0

    def on_response_complete(self) -> None:
        """Go on with the next request of the connection; as uvicorn does it, but with one timer a connection."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._due is None:
            self._is_idle = True
            self._wait_until(self.loop.time() + self.timeout_keep_alive)

    def _arm(self) -> None:
        if self._due is None or self._is_idle:
            self._is_idle = False
            self._wait_until(self.loop.time() + self.seconds)

    def _disarm(self) -> None:
        self._due = None  # the timer stays: one for a connection, not one for each of its requests

    def _wait_until(self, due: float) -> None:
        self._due = due
        if self._timer is None or due < self._look_at:
            self._set_timer(due)

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._look_at, self._timer = due, self.loop.call_at(due, self._look)

    def _look(self) -> None:
        """End the connection if what it waits for is late; else look again when that is due."""
        self._timer = None
        if self._due is None:
            return
        if self.loop.time() < self._due:
            self._set_timer(self._due)
        elif self._is_idle:
            self.transport.close()
        else:
            self._end(_TIMEOUT)

    def _end(self, answer: bytes) -> None:
        """Answer, unless an answer is under way, and close."""
        self._disarm()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(answer)
        self.transport.close()
