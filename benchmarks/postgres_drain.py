"""
Fill a queue, then drain it with one or more processes: the same for every contender.

Owns the case that runs in a process of its own, and what a contender must bring to take part.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks import postgres_peers, postgres_redrive
from benchmarks import postgres_server as server
from benchmarks.race import on_fast_loop, race

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

PUT_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Contender:
    """How one of them is filled, drained and asked whether anything is left."""

    fill: Callable[[str, int, int], Any]
    work: Callable[..., Awaitable[float]]
    left: str = ""


CONTENDERS = {
    "redrive": Contender(postgres_redrive.fill, postgres_redrive.work),
    "raw asyncpg": Contender(
        postgres_peers.raw_fill,
        postgres_peers.raw_work,
        "SELECT count(*) FROM letters WHERE status <> 'delivered'",
    ),
    "pgqueuer": Contender(
        postgres_peers.pgqueuer_fill,
        postgres_peers.pgqueuer_work,
        "SELECT count(*) FROM pgqueuer",
    ),
    "procrastinate": Contender(
        postgres_peers.procrastinate_fill,
        postgres_peers.procrastinate_work,
        "SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded'",
    ),
}


def fill_and_drain(
    folder: Path, url: str, contender: str, n: int, processes: int, settings: dict[str, Any], *, held: bool = False
) -> dict[str, Any]:
    """Put *n* letters and let *processes* handle them; return the seconds of both."""
    who = CONTENDERS[contender]
    put = on_fast_loop(who.fill(url, n, PUT_AT_ONCE))
    server.calm(url)
    with server.held_transaction(url) if held else contextlib.nullcontext():
        drained = race(who.work, folder, n, processes, url=url, **settings)
    _check_nothing_left(url, who)
    return {"n": n, "put": put, "seconds": drained["seconds"], "shares": drained["shares"]}


def _check_nothing_left(url: str, who: Contender) -> None:
    if who.left:
        left = server.value(url, who.left)
        assert left == 0, f"{left} are left"
    else:
        on_fast_loop(postgres_redrive.check_drained(url))
