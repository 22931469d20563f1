"""
Fixtures for users' tests, found by pytest itself where redrive is installed.

Owns the fixture alone; what it gives is in `redrive.testing`. A module of its own beside the package, and with no
import of it before a test asks: pytest loads plugins before it measures coverage.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redrive.testing import SyncDrive


@pytest.fixture
def redrive_drive() -> Iterator[Callable[..., SyncDrive]]:
    """Give what drives an application in a plain test function, until the test ends."""
    from redrive.testing import drive_sync  # noqa: PLC0415 - see above

    with contextlib.ExitStack() as ended:

        def start(app: Any, **options: Any) -> SyncDrive:
            return ended.enter_context(drive_sync(app, **options))

        yield start
