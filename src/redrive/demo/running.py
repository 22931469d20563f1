"""
The first half of the story: letters come in, workers run, one is killed.

Owns when the worker is killed and what is watched meanwhile. What is shown comes from the books and
from queries, never from what the demo expects.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from redrive.core.query import parse
from redrive.demo import letters
from redrive.demo.screen import count
from redrive.demo.worker import worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from redrive.app import Redrive
    from redrive.demo.screen import Screen
    from redrive.demo.worker import Worker

    Show = Callable[[Mapping[str, int]], None]

FIRST = "1.0"  # the release with the bug
_KILL_AT = letters.TOTAL * 2 // 5  # delivered letters
_GLANCE = 0.1  # seconds


async def accept(app: Redrive, screen: Screen) -> None:
    """Enqueue everything."""
    screen.step(f"Accept {count(letters.TOTAL)} letters", "A letter is on disk before enqueue() returns.")
    await app.enqueue_many(letters.drafts(app))
    kinds = (await app.desk.stats()).by_kind
    screen.done(" · ".join(f"{count(states['enqueued'])} {kind}" for kind, states in kinds.items()))


async def run_and_kill(app: Redrive, screen: Screen, folder: Path) -> dict[str, int]:
    """Work everything off, with a kill -9 in the middle; return what the workers met, counted."""
    screen.step("Run a worker, kill it half-way, run another", "What a dead worker held is taken back, not lost.")
    with screen.progress(letters.TOTAL) as show:
        async with worker(folder, FIRST) as first:
            await _until(app, show, first, lambda books: books["delivered"] >= _KILL_AT)
            await first.kill()
        held = (await books_of(app))["in_flight"]
        screen.say(f"[red]kill -9[/] worker {first.pid}: it held {count(held)} letters")
        async with worker(folder, FIRST) as second:
            screen.say(f"[green]start[/]   worker {second.pid}")
            await _until(app, show, second, lambda _: False)
    met = await _met(app)
    screen.done(f"{count(met['healed'])} payments met a provider that hung up twice; retries healed all of them")
    screen.done(f"{count(met['rescued'])} letters of the killed worker were taken back and delivered")
    screen.done(
        f"{met['crashed']} invoice crashed its process three times: it failed alone, "
        f"its {count(met['neighbours'])} neighbours were delivered"
    )
    return met


async def work_off(app: Redrive, folder: Path, release: str) -> None:
    """Run a worker of *release* until nothing is left to do."""
    async with worker(folder, release) as running:
        await _until(app, lambda _: None, running, lambda _: False)


async def books_of(app: Redrive) -> dict[str, int]:
    """Return the books as they stand."""
    return (await app.desk.stats()).books


async def how_many(app: Redrive, query: str) -> int:
    """Count the letters that match."""
    return await app.store.count(parse(query))


async def _until(app: Redrive, show: Show, running: Worker, reached: Callable[[Mapping[str, int]], bool]) -> None:
    """Watch the books until they are as wanted, or the worker has nothing left to do."""
    while True:
        ended = running.done
        books = await books_of(app)
        show(books)
        if ended or reached(books):
            return
        await asyncio.sleep(_GLANCE)


async def _met(app: Redrive) -> dict[str, int]:
    return {
        "healed": await how_many(app, "status:delivered kind:payment.capture attempts:>1"),
        "rescued": await how_many(app, "status:delivered losses:>0"),
        "crashed": await how_many(app, "status:failed kind:invoice.render why:worker_crashed"),
        "neighbours": await how_many(app, "status:delivered kind:invoice.render"),
    }
