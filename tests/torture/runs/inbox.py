"""
Senders of webhooks through kills of the inbox.

Owns many senders that send again until they are answered, kill -9 of the inbox at random moments, and the comparison
of what was answered with what is kept.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, NamedTuple

from tests.sources.webhook.served import Served, kept, send, until_done

if TYPE_CHECKING:
    from pathlib import Path

EACH = 5  # events of a sender


class Found(NamedTuple):
    counts: dict[str, int]
    problems: list[str]


async def at_random(folder: Path, kills: int, seed: int, *, senders: int) -> Found:
    """Let *senders* send EACH events while the inbox is killed so often, and compare."""
    served, answered = Served(folder), set[str]()
    served.start()

    async def sender(number: int) -> None:
        for n in range(EACH):
            await send(served, f"evt-{number}-{n}")
            answered.add(f"evt-{number}-{n}")

    tasks = [asyncio.create_task(sender(number)) for number in range(senders)]
    try:
        await _kill(served, kills, answered, senders * EACH, random.Random(seed))
        await asyncio.gather(*tasks)
        await until_done(served, senders * EACH)
        code = await asyncio.to_thread(served.end)
        return await _judged(served, answered, code)
    finally:
        if served.process.poll() is None:
            served.kill()


async def _kill(served: Served, kills: int, answered: set[str], total: int, dice: random.Random) -> None:
    for kill in range(kills):
        while len(answered) < total * (kill + 1) // (kills + 2):  # noqa: ASYNC110 - how far the senders are
            await asyncio.sleep(0.01)
        await asyncio.sleep(dice.random() / 50)
        await asyncio.to_thread(served.kill)
        await asyncio.to_thread(served.start)


async def _judged(served: Served, answered: set[str], code: int) -> Found:
    books, statuses = await kept(served)
    handled = (served.folder / "handled").read_text().split()
    delivered = {name for name, status in statuses.items() if status == "delivered"}
    counts = {
        "accepted": len(answered),
        "kept": books["enqueued"],
        "delivered": books["delivered"],
        "failed": books["failed"],
        "runs": len(handled),
        "lost": len(answered - set(statuses)),
        "unexpected": len(set(statuses) - answered) + books["enqueued"] - len(statuses),
    }
    wrong = {
        "accepted events are not kept, or others are": counts["lost"] or counts["unexpected"],
        "delivered events were not handled": delivered - set(handled),
        "the books do not balance": books["enqueued"] != books["delivered"] + books["failed"],
        f"the inbox ended with {code}": code,
    }
    return Found(counts, [what for what, is_so in wrong.items() if is_so])
