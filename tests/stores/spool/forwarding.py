"""In a process of its own: accept letters while the store is away, then let it come back and forward them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.stores.samples import draft
from tests.stores.spool.shutter import Shuttered

from redrive.stores.spool import SpoolStore


async def main(folder: Path, first: int, count: int) -> None:
    behind = Shuttered(folder / "store.db")
    store = SpoolStore(behind, str(folder / "spool.db"), limit=1_000)
    await store.open()
    for n in range(first, first + count):
        [receipt] = await store.put([draft(str(n), key=f"k{n % 3}")])
        assert receipt.spooled
        print(n, flush=True)  # it is accepted: from now on it must not be lost
    behind.shutter.unlink(missing_ok=True)
    while (await store.spooled()).waiting:
        await store.stepped()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
