"""
The offset map: what is done beyond the committed offset.

Owns the text that goes into the commit's metadata: alternating lengths of open and done stretches, Rice coded, with
a checksum that also covers the offset it belongs to. What does not fit is cut off at the high end, and those records
run again. A map that cannot be read (foreign, torn, hostile, of another offset) counts as no map. Knows no Kafka
client.
"""

from __future__ import annotations

from binascii import crc_hqx
from itertools import accumulate
from typing import TYPE_CHECKING

from redrive.sources.kafka.offsets.rice_code import (
    ALPHABETS,
    MAX_K,
    NARROW,
    WIDE,
    BitReader,
    Unreadable,
    best_k,
    cost,
    rice,
)

if TYPE_CHECKING:
    from redrive.sources.kafka.offsets.rice_code import Alphabet
    from redrive.sources.kafka.offsets.tracker import Ranges

LIMIT = 4095  # characters: the broker allows 4096, and the client adds one
_VERSION = 2  # maps of version 1 may be wrong: ranges that touched each other were written as if they were apart
_HEAD = 4 + 16 + 5 + 5 + 16  # version, checksum, two Rice parameters, number of stretches
_MOST = (1 << 16) - 1
_LEAST_ROOM = 256  # characters


def write_map(offset: int, done: Ranges, *, limit: int = LIMIT, alphabet: Alphabet = WIDE) -> str:
    """Return the map of *done*, ranges above *offset*, or of as many as fit; nothing if there are none."""
    opens, dones = _stretches(offset, done)
    if not done or limit <= 1:
        return ""
    k_open, k_done = best_k(opens), best_k(dones)
    count = _fitting(opens, dones, k_open, k_done, (limit - 1) * alphabet.width - _HEAD)
    if not count:
        return ""
    pairs = zip(rice(opens[:count], k_open), rice(dones[:count], k_done), strict=True)
    body = format(k_open, "05b") + format(k_done, "05b") + format(count, "016b") + "".join(a + b for a, b in pairs)
    bits = format(_VERSION, "04b") + format(_checksum(offset, body), "016b") + body
    return alphabet.tag + alphabet.write(bits)


def fits(offset: int, done: Ranges, *, limit: int = LIMIT, alphabet: Alphabet = WIDE) -> bool:
    """Whether the map of *done* leaves nothing out."""
    opens, dones = _stretches(offset, done)
    budget = (limit - 1) * alphabet.width - _HEAD
    return _fitting(opens, dones, best_k(opens), best_k(dones), budget) == len(dones)


class MapRoom:
    """How large a map may be: this broker may allow less metadata than others."""

    __slots__ = ("alphabet", "limit")

    def __init__(self) -> None:
        self.alphabet, self.limit = WIDE, LIMIT

    def shrink(self) -> None:
        """Write smaller maps; a broker that counts bytes gets the narrow alphabet."""
        if self.limit // 2 >= _LEAST_ROOM or self.alphabet is NARROW:
            self.limit //= 2
        else:
            self.alphabet = NARROW


def read_map(offset: int, text: str | None, *, end: int) -> Ranges:
    """Return the ranges that *text* says are done above *offset*, or none; none may reach beyond *end* of the log."""
    try:
        ranges = _read(offset, (text or "").rstrip("\0"))
    except Unreadable:
        return []
    return ranges if not ranges or ranges[-1][1] <= end else []


def _stretches(offset: int, done: Ranges) -> tuple[list[int], list[int]]:
    """Return the lengths of the open and of the done stretches, each less one, since none is empty."""
    edges = [offset, *(high for _, high in done)]
    opens = [low - before - 1 for before, (low, _) in zip(edges, done, strict=False)]
    if min(opens, default=0) < 0:  # it would read as if the rest were one further on: better to stop than to lose that
        raise ValueError(f"what is done beyond offset {offset} is not apart from it, or from each other")
    return opens, [high - low - 1 for low, high in done]


def _fitting(opens: list[int], dones: list[int], k_open: int, k_done: int, budget: int) -> int:
    costs = (cost(a, k_open) + cost(b, k_done) for a, b in zip(opens, dones, strict=True))
    count = 0
    for total in accumulate(costs):
        if total > budget or count == _MOST:
            break
        count += 1
    return count


def _checksum(offset: int, body: str) -> int:
    return crc_hqx(body.encode(), crc_hqx(offset.to_bytes(8, "big"), _VERSION))


def _read(offset: int, text: str) -> Ranges:
    alphabet = ALPHABETS.get(text[:1])
    if alphabet is None or len(text) > LIMIT + 1:
        raise Unreadable("not a map")
    reader = BitReader(alphabet.read(text[1:]))
    version, checksum = reader.number(4), reader.number(16)
    body = reader.rest()
    k_open, k_done, count = reader.number(5), reader.number(5), reader.number(16)
    ranges, at = [], offset
    for _ in range(count):
        low = at + reader.rice(min(k_open, MAX_K)) + 1
        at = low + reader.rice(min(k_done, MAX_K)) + 1
        ranges.append((low, at))
    written = body[: len(body) - len(reader.rest())]
    if version != _VERSION or checksum != _checksum(offset, written):
        raise Unreadable("its checksum is wrong")
    return ranges
