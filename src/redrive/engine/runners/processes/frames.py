"""
What the pipe between a worker and its child processes carries.

Owns the frames: four bytes of length, then msgspec bytes; never pickle. Both ends use this file, and neither
trusts the other. Knows no process and no socket.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

from redrive.core.letter import Failure, Letter

if TYPE_CHECKING:
    from collections.abc import Iterator

_LENGTH = struct.Struct(">I")
HEAD = _LENGTH.size
READY = 0  # the number of a child's first report: it can take letters
_encode = msgspec.msgpack.Encoder().encode


class RunOrder(msgspec.Struct, frozen=True, array_like=True):
    """Run this letter; without one, only build the handler. The recipe is bytes: a child decodes each only once."""

    number: int
    recipe: bytes
    more: bool  # the next order comes with it, so a success need not be reported yet: its mark is enough
    letter: Letter | None


class _Written(msgspec.Struct, frozen=True, array_like=True):
    """A RunOrder whose letter is encoded already."""

    number: int
    recipe: bytes
    more: bool
    letter: msgspec.Raw


class Report(msgspec.Struct, frozen=True, array_like=True):
    """
    What became of an order: it begins only now (its handler had to be imported), or it has ended.

    Orders before it that were not reported have succeeded, and each is marked (`marks`).
    """

    number: int
    begins: bool = False
    failure: Failure | None = None
    took: float = 0.0  # seconds that the longest letter since the last report ran
    recalled: bool = False  # it was recalled before it began


class BadFrame(Exception):
    """The other end broke the protocol."""


def pack(content: Report | _Written) -> bytes:
    """Return *content* as one frame."""
    body = _encode(content)
    return _LENGTH.pack(len(body)) + body


def packed_letter(letter: Letter | None) -> bytes:
    """Return *letter* as it stands in an order; raise what msgspec raises for what cannot be sent."""
    return _encode(letter)


def packed_order(number: int, recipe: bytes, letter: bytes, *, more: bool) -> bytes:
    """Return an order as one frame."""
    return pack(_Written(number, recipe, more, msgspec.Raw(letter)))


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
