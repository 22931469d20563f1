"""
The first half of the story: letters come in, workers run, one is killed.

Owns when the worker is killed, and what the screen shows until then. Every number comes from the books and
from queries, never from what the demo expects. Knows no operator.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from redrive.demo import letters
from redrive.demo.screen import count
from redrive.demo.worker import worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from redrive.app import Redrive
    from redrive.demo.screen import Screen
    from redrive.demo.worker import DemoWorker
    from redrive.desk.look.stats import Stats

    Show = Callable[[Mapping[str, int]], None]

FIRST = "1.0"  # the release with the bug
_KILL_AT = letters.TOTAL // 2  # delivered letters
_GLANCE = 0.1  # seconds


async def accept(app: Redrive, screen: Screen) -> None:
    """Enqueue everything."""
    screen.step(f"Accept {count(letters.TOTAL)} letters", "A letter is on disk before enqueue() returns.")
    await app.enqueue_many(letters.drafts(app))
    queues = (await app.desk.stats()).by_queue
    screen.done(" · ".join(f"{count(states['enqueued'])} {queue}" for queue, states in queues.items()))


async def crash(app: Redrive, screen: Screen, folder: Path) -> dict[str, int]:
    """Work the invoices off, one of which ends its process; return what became of them."""
    screen.step(
        "Run the invoices in processes; one crashes its own", "A crash takes one process, never its neighbours."
    )
    with screen.progress(letters.INVOICES) as show:
        async with worker(folder, FIRST, "invoices") as running:
            await _until(app, show, running, _never)
    crashed = await how_many(app, "status:failed kind:invoice.render why:worker_crashed")
    neighbours = await how_many(app, "status:delivered kind:invoice.render")
    screen.done(f"{crashed} invoice crashed its process 3 times and failed; its {neighbours} neighbours did not")
    return {"crashed": crashed, "neighbours": neighbours}


async def run_and_kill(app: Redrive, screen: Screen, folder: Path) -> dict[str, int]:
    """Work the rest off, with a kill -9 in the middle; return what the workers met, counted."""
    screen.step("Run the rest, kill the worker half-way", "What a dead worker held is taken back, not lost.")
    with screen.progress(letters.TOTAL) as show:
        async with worker(folder, FIRST) as first:
            await _until(app, show, first, _is_half_way)
            await first.kill()
        held = (await books_of(app))["in_flight"]
        screen.say(f"[red]kill -9[/] worker {first.pid}: it held {count(held)} letters")
        async with worker(folder, FIRST) as second:
            screen.say(f"[green]start[/]   worker {second.pid}")
            await _until(app, show, second, _never)
    healed = await how_many(app, "status:delivered kind:payment.capture attempts:>1")
    rescued = await how_many(app, "losses:>0 -why:worker_crashed")
    screen.done(f"{count(rescued)} letters of the killed worker were taken back by the next one")
    screen.done(f"{count(healed)} payments met a provider that hung up twice; retries healed all of them")
    return {"held": held, "rescued": rescued, "healed": healed}


async def work_off(app: Redrive, folder: Path, release: str) -> None:
    """Run a worker of *release* until nothing is left to do."""
    async with worker(folder, release) as running:
        await _until(app, lambda _: None, running, _never)


async def books_of(app: Redrive) -> dict[str, int]:
    """Return the books as they stand."""
    return (await app.desk.stats()).books


async def how_many(app: Redrive, query: str) -> int:
    """Count the letters that match."""
    return await app.desk.count(query)


async def _until(app: Redrive, show: Show, running: DemoWorker, reached: Callable[[Stats], bool]) -> None:
    """Watch the books until they are as wanted, or the worker has nothing left to do."""
    while True:
        ended = running.done
        stats = await app.desk.stats()
        show(stats.books)
        if ended or reached(stats):
            return
        await asyncio.sleep(_GLANCE)


def _is_half_way(stats: Stats) -> bool:
    return stats.books["delivered"] >= _KILL_AT


def _never(stats: Stats) -> bool:
    del stats
    return False
