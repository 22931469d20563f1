"""A folder for tests whose faults are modelled, where a real disk would only be slow; a server whose plug is pulled."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.servers.postgres import Missing, discard, start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.postgres import Postgres


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own in it
    folder = Path(tempfile.mkdtemp(prefix="redrive-torture-", dir=memory if memory.is_dir() else None))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def pg() -> Iterator[Postgres]:
    """A PostgreSQL server of its own, with nothing switched off; a missing one fails in CI and skips elsewhere."""
    try:
        server = start(18)
    except Missing as missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))
    yield server
    discard(server)
