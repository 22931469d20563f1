"""
What is sent, and whether it arrived.

Owns the payload that every contender carries and the marks that prove that each was
handled once. Knows no contender and no clock but the one that cuts slow ones short.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PAYLOAD_BYTES = 220
KIND = "order.created"


def payload(i: int) -> dict[str, Any]:
    """Return letter number *i*: a JSON object of exactly PAYLOAD_BYTES bytes."""
    body = {"i": i, "type": KIND, "body": ""}
    body["body"] = "x" * (PAYLOAD_BYTES - len(json.dumps(body, separators=(",", ":"))))
    return body


def payloads(n: int, start: int = 0) -> list[dict[str, Any]]:
    """Return *n* payloads, made before the clock runs."""
    return [payload(i) for i in range(start, start + n)]


def in_batches(things: list[Any], size: int) -> list[list[Any]]:
    """Return *things* in lists of *size*."""
    return [things[start : start + size] for start in range(0, len(things), size)]


class Marks:
    """One byte per letter, so that memory stays flat: how often it was handled."""

    def __init__(self, n: int) -> None:
        self.counts = bytearray(n)

    def check(self, expected: int) -> int:
        """Return how many letters were handled; raise unless *expected* were, each exactly once."""
        once, twice = self.counts.count(1), len(self.counts) - self.counts.count(0) - self.counts.count(1)
        assert (once, twice) == (expected, 0), f"{once} of {expected} handled once, {twice} more often"
        return once


def check_lines(path: Path, expected: int) -> int:
    """Do the same for handlers in other processes, which each appended a line per letter."""
    numbers = [int(line) for line in path.read_text().split()]
    assert len(numbers) == len(set(numbers)) == expected, f"{len(numbers)} lines, {len(set(numbers))} distinct"
    return expected


def each(action: Callable[[Any], object], things: Iterable[Any], cut: float | None) -> tuple[int, float]:
    """Do *action* on each thing until *cut* seconds have passed; return how many and how long."""
    start = time.perf_counter()
    end = start + (cut or 1e9)
    done = 0
    for thing in things:
        action(thing)
        done += 1
        if time.perf_counter() > end:
            break
    return done, time.perf_counter() - start


def resident() -> float:
    """Return this process's memory in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6
