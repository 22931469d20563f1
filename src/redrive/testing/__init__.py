"""
For users' tests: an application on a clock that only the test moves.

Owns the public names: a fake clock, and a worker that the test drives by hand, so that no test sleeps, waits for a
retry, or leaves a file behind. Everything else is the real thing: the same engine, the same decisions, and a store that
passes the same test suite as every other store. Knows no test framework.

    async def test_an_order_is_shipped_once_the_warehouse_is_back():
        async with drive(app) as test:
            await app.enqueue("order.created", {"order": 17})
            await test.run_until_idle()  # retries too: the clock jumps to each of them
            assert not await test.letters("status:failed")

Where no test framework runs coroutines, `drive_sync` does the same for plain code.
"""

from redrive.testing.clock import FakeClock
from redrive.testing.driving import Drive, drive
from redrive.testing.kafka import drive_worker
from redrive.testing.plain import SyncDrive, drive_sync

__all__ = ["Drive", "FakeClock", "SyncDrive", "drive", "drive_sync", "drive_worker"]
