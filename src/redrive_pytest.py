"""
Fixtures for users' tests; pytest finds them where redrive is installed.

Owns only the fixture; `redrive.testing` does the work. It is a module outside the package and imports the package only
when a test asks for the fixture, because pytest loads plugins before it measures coverage.
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
    """Return a function that drives an application in a plain test function until the test ends."""
    from redrive.testing import drive_sync  # noqa: PLC0415 - see above

    with contextlib.ExitStack() as ended:

        def start(app: Any, **options: Any) -> SyncDrive:
            return ended.enter_context(drive_sync(app, **options))

        yield start
