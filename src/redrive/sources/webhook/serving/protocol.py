"""
Connections of senders, within bounds that uvicorn does not have.

Owns the deadline from a connection's first byte, or its opening, to the last byte of a request, and the limits on what
is read before an application sees it. Knows no source and no signature.
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


def bounded(*, seconds: float, max_headers: int, max_body: int) -> Callable[..., BoundedProtocol]:
    """Return what makes a protocol for one connection."""

    def make(*given: Any, **named: Any) -> BoundedProtocol:
        made = BoundedProtocol(*given, **named)
        made.seconds, made.most_head = seconds, max_headers + _SLACK
        made.most = made.most_head + _FRAMING * max_body
        return made

    return make


class BoundedProtocol(HttpToolsProtocol):
    """One connection; `bounded` sets its limits."""

    seconds = 10.0
    most_head = most = _SLACK  # bytes
    _timer: asyncio.TimerHandle | None = None
    _received = 0  # bytes since the request that arrives began
    _in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._disarm()
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
        """Stop the clock: what takes time now is ours."""
        self._disarm()
        self._in_head, self._received = True, 0
        super().on_message_complete()

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self._end, _TIMEOUT)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, answer: bytes) -> None:
        """Answer, unless an answer is under way, and close."""
        self._disarm()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(answer)
        self.transport.close()
