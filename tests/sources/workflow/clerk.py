"""
Enqueue, archive or clear tasks, until it is killed: `python -m tests.sources.workflow.clerk URL VERB`.

The verb is enqueue, archive, clear, or spool: a folder then stands in place of the URL, and its store is away at first.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.sources.workflow.samples import enqueue
from tests.stores.spool.shutter import Shuttered

from redrive import Redrive
from redrive.stores.spool import SpoolStore
from redrive.workflow import DeadLetterQueue

TASKS = 4


async def act(dlq: DeadLetterQueue, verb: str) -> None:
    if verb == "clear":
        await dlq.clear_all()
        return
    for number in range(TASKS):
        if verb == "archive":
            await dlq.archive_task(f"wf_{number}")
        else:
            await enqueue(dlq, f"wf_{number}", max_retries=0)


async def spool(folder: Path) -> None:
    """Enqueue a new task and one that is kept, both without retries, while the store is away; then let it come back."""
    behind = Shuttered(folder / "store.db")
    store = SpoolStore(behind, str(folder / "spool.db"), limit=100)
    app = Redrive(store=store)
    await app.open()
    if behind.shutter.exists():
        for task_id in ("wf_new", "wf_kept"):
            await enqueue(DeadLetterQueue(store=app), task_id, max_retries=0)
        behind.shutter.unlink()
    while (await store.spooled()).waiting:
        await store.stepped()
    await app.close()


async def main(where: str, verb: str) -> None:
    if verb == "spool":
        await spool(Path(where))
        return
    app = Redrive(where)
    await act(DeadLetterQueue(store=app), verb)
    await app.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
