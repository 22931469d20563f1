"""
Between a client and a broker: answers some of a client's questions in the broker's place.

Owns the one answer "I am not the coordinator of this group" to the question for a group's
offsets, as a broker gives it that is only just starting. Whatever else is said passes by.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_OFFSET_FETCH, _VERSIONS = 9, range(8, 11)
_NOT_COORDINATOR = 16


class Between(socketserver.ThreadingTCPServer):
    """Refuses, *after* so many, the next *refusals* questions for offsets of the client that calls itself *client*."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, broker: int, *, client: str, refusals: int, after: int = 0) -> None:
        self.broker, self.client, self.refusals, self.after = broker, client.encode(), refusals, after
        super().__init__(("127.0.0.1", port), _Passing)

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.shutdown()
        self.server_close()

    def refuses(self, request: bytes) -> bool:
        kind, _version, _number, length = struct.unpack_from(">hhih", request)
        if kind != _OFFSET_FETCH or request[10 : 10 + length] != self.client:
            return False
        self.after -= 1
        self.refusals -= self.after < 0
        return self.after < 0 <= self.refusals


class _Passing(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.server.broker)) as broker:
            writing = threading.Lock()
            threading.Thread(target=self._pass_answers, args=(broker, writing), daemon=True).start()
            for request in _frames(self.request):
                if self.server.refuses(request):
                    with writing:
                        self.request.sendall(_framed(_refusal(request)))
                else:
                    broker.sendall(_framed(request))

    def _pass_answers(self, broker: socket.socket, writing: threading.Lock) -> None:
        with contextlib.suppress(OSError):
            for answer in _frames(broker):
                with writing:
                    self.request.sendall(_framed(answer))
            self.request.shutdown(socket.SHUT_RDWR)


def _refusal(request: bytes) -> bytes:
    """Return an answer of no offsets and one error, for one group without a name, which clients do not look at."""
    _, version, number = struct.unpack_from(">hhi", request)
    assert version in _VERSIONS
    groups = b"\x02" + b"\x01" + b"\x01" + struct.pack(">h", _NOT_COORDINATOR) + b"\x00"
    return struct.pack(">i", number) + b"\x00" + struct.pack(">i", 0) + groups + b"\x00"


def _framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def _frames(link: socket.socket) -> Iterator[bytes]:
    with link.makefile("rb") as file:
        while len(size := file.read(4)) == 4:
            yield file.read(struct.unpack(">i", size)[0])
