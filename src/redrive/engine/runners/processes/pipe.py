"""
The parent's end of a child's pipe.

Owns reading and writing without ever blocking the event loop, however large a letter is. Knows reports, but not
what follows from them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from redrive.engine.runners.processes.frames import BadFrame, Report, Splitter

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

_CHUNK = 65_536
_REPORT_LIMIT = 4 * 1024 * 1024  # a failure's texts are cut long before
_decode = msgspec.msgpack.Decoder(Report).decode


class Pipe:
    """Calls *reported* with each report, and *ended* once, with the reason why no more will come."""

    def __init__(self, end: socket.socket, reported: Callable[[Report], None], ended: Callable[[str], None]) -> None:
        self._socket = end
        self._reported = reported
        self._ended = ended
        self._splitter = Splitter(_REPORT_LIMIT)
        self._unsent = memoryview(b"")
        self._loop = asyncio.get_running_loop()
        end.setblocking(False)  # noqa: FBT003 - its only form
        self._loop.add_reader(end.fileno(), self._readable)

    def send(self, frame: bytes) -> None:
        """Send *frame*, now or as the other end makes room; raise ConnectionError if it is closed."""
        sent = self._write(frame)
        if sent < len(frame):
            self._unsent = memoryview(frame)[sent:]
            self._loop.add_writer(self._socket.fileno(), self._flush)

    @property
    def is_sending(self) -> bool:
        """Whether a part of the last frame is still unsent; no other frame may be sent until then."""
        return bool(self._unsent)

    def close(self) -> None:
        """Close it; *ended* is not called any more. May be called twice."""
        if self._socket.fileno() < 0:
            return
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()

    def _write(self, data: bytes | memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ConnectionError(str(error)) from None

    def _flush(self) -> None:
        try:
            self._unsent = self._unsent[self._write(self._unsent) :]
        except ConnectionError:  # reading meets it too, after the reports that are still in the pipe
            self._unsent = memoryview(b"")
        if not self._unsent:
            self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self._end("")

    def _take(self, data: bytes) -> None:
        try:
            reports = [_decode(frame) for frame in self._splitter.feed(data)]
        except (BadFrame, msgspec.DecodeError, ValueError) as error:
            self._end(f"sent what is no report ({error})")
            return
        for report in reports:
            if self._socket.fileno() >= 0:  # else an earlier report closed the pipe
                self._reported(report)

    def _end(self, why: str) -> None:
        self.close()
        self._ended(why)
