"""An application on the real clock, on each embedded store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redrive import Redrive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture(params=["memory", "sqlite"])
async def app(request, folder) -> AsyncIterator[Redrive]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{folder}/redrive.db"
    async with Redrive(url, poll_seconds=0.05) as app:
        yield app
