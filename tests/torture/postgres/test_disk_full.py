"""A full disk under PostgreSQL: callers hear of it, nothing is lost, work goes on by itself when there is room."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.torture import workload
from tests.torture.checker import judge
from tests.torture.history import History
from tests.torture.sqlite.test_disk_full import Disk

from redrive.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.postgres import Postgres

pytestmark = pytest.mark.torture

MEGABYTES = 200
SMALL = {"max_wal_size": "32MB", "min_wal_size": "32MB", "shared_buffers": "16MB", "temp_buffers": "800kB"}


@pytest.fixture
def small(pg: Postgres) -> Iterator[tuple[Postgres, Disk]]:
    """A server whose files lie on a small file system of their own."""
    folder = Path(tempfile.mkdtemp(prefix="redrive-small-"))
    folder.chmod(0o755)  # the server runs as somebody else
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        folder.rmdir()
        pytest.skip(f"a small file system cannot be mounted here (it takes root): {mounted.stderr.decode().strip()}")
    pg.stop()
    data = pg.folder / "data"
    subprocess.run(["cp", "-a", str(data), str(folder / "data")], check=True)
    shutil.rmtree(data)
    data.symlink_to(folder / "data")
    pg.restart(**SMALL)
    yield pg, Disk(folder)
    pg.stop()
    subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()


async def test_a_full_disk_is_said_and_loses_nothing(small: tuple[Postgres, Disk], tmp_path: Path):
    pg, disk = small
    workload.quiet()
    app, _ = workload.build(tmp_path, url=pg.url)
    await app.open()
    working = asyncio.create_task(app.run(signals=False))
    refused: list[str] = []
    for turn in range(2):
        await app.enqueue_many([app.draft("ok", {"n": n}) for n in range(50)])
        disk.fill()
        async with asyncio.timeout(180):
            while len(refused) <= turn:
                try:
                    await app.enqueue_many([app.draft("ok", {"pad": _noise()}) for _ in range(20)])
                except StoreUnavailable as error:
                    refused.append(str(error))
        disk.free()
        async with asyncio.timeout(180):
            while True:
                if pg.process.poll() is not None:  # perhaps not at once: what it writes last takes its time
                    pg.restart(**SMALL)  # a server that cannot write its log ends: somebody starts it again
                with contextlib.suppress(StoreUnavailable):
                    await app.enqueue("ok", {"after": turn})
                    break
    app.stop()
    await working
    await app.run(until_idle=True, signals=False)
    await app.close()
    verdict = await asyncio.to_thread(judge, History(tmp_path / "history"), pg.url, floor=90)
    assert verdict.ok, verdict
    assert all("disk is full" in said or "cannot reach" in said for said in refused), refused


def _noise() -> str:
    import secrets  # noqa: PLC0415 - for this alone; what compresses fills no disk

    return secrets.token_hex(60_000)
