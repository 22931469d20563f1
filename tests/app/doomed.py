"""A worker in a process of its own, for tests that kill or stop it: its handler says that it began, and never ends."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from redrive import Redrive

LEASE = 3_600.0  # seconds: whatever comes sooner does not come by the lease


def main(database: str, what: str) -> None:
    app = Redrive(f"sqlite:///{database}", lease_seconds=LEASE)

    @app.handler("order.created")
    async def ship(order: dict):
        if what == "forks" and os.fork() == 0:
            os.close(sys.stdout.fileno())  # or the test would wait for its end, too
            time.sleep(LEASE)  # noqa: ASYNC251 - a child that outlives its parent, with all else that it inherited
        print("began", flush=True)
        await asyncio.Event().wait()

    asyncio.run(app.run())


if __name__ == "__main__":
    main(*sys.argv[1:])
