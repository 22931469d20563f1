"""A folder for tests whose faults are modelled: a real disk would only slow them down."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own in it
    folder = Path(tempfile.mkdtemp(prefix="redrive-torture-", dir=memory if memory.is_dir() else None))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
