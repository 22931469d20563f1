"""
What the pipe between a worker and its child processes carries.

Owns the frames: four bytes of length, then msgspec bytes; never pickle. Both ends use this file, and neither
trusts the other. Knows no process and no socket.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

from redrive.core.classify import Rules
from redrive.core.letter import Failure, Letter

if TYPE_CHECKING:
    from collections.abc import Iterator

_LENGTH = struct.Struct(">I")
HEAD = _LENGTH.size
READY = 0  # the number of a child's first report: it can take letters
_encode = msgspec.msgpack.Encoder().encode


class Recipe(msgspec.Struct, frozen=True, array_like=True):
    """How a child builds a handler: every function by its address, every error by its name."""

    kind: str
    address: str
    succeeded: str | None
    terminal_errors: tuple[str, ...]
    retryable_errors: tuple[str, ...]
    rules: Rules


class RunOrder(msgspec.Struct, frozen=True, array_like=True):
    """Run this letter; without one, only build the handler. The recipe is bytes: a child decodes each only once."""

    number: int
    recipe: bytes
    letter: Letter | None


class Report(msgspec.Struct, frozen=True, array_like=True):
    """What became of an order: it begins only now (its handler had to be imported), or it has ended."""

    number: int
    begins: bool = False
    failure: Failure | None = None
    took: float = 0.0  # seconds that its letter ran
    recalled: bool = False  # it was recalled before it began


class BadFrame(Exception):
    """The other end broke the protocol."""


def pack(content: RunOrder | Report) -> bytes:
    """Return *content* as one frame."""
    body = _encode(content)
    return _LENGTH.pack(len(body)) + body


def recall(number: int) -> bytes:
    """Return the bytes that recall order *number*; they have a pipe of their own, so that they overtake the orders."""
    return _LENGTH.pack(number)


def recalled(words: bytes) -> int:
    """Return the last number that *words* recall, READY if there is none."""
    number: int = _LENGTH.unpack(words[-HEAD:])[0] if len(words) >= HEAD else READY
    return number


def length(head: bytes | bytearray) -> int:
    """Return how many bytes follow *head*."""
    size: int = _LENGTH.unpack(head)[0]
    return size


class Splitter:
    """Cuts a stream of bytes into frames of at most *limit* bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the frames that *data* completes; raise BadFrame if one is too long."""
        self._rest = self._rest + data if self._rest else data
        while len(self._rest) >= HEAD:
            end = HEAD + _LENGTH.unpack_from(self._rest)[0]
            if end > self._limit:
                raise BadFrame(f"a frame of {end} bytes, and {self._limit} are allowed")
            if len(self._rest) < end:
                return
            frame, self._rest = self._rest[HEAD:end], self._rest[end:]
            yield frame
