"""An application on an empty schema of the shared server, and users of every driver beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.stores.conftest import server_url
from tests.stores.samples import check_books

from redrive import Redrive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def url() -> str:
    return server_url()


@pytest.fixture
async def app(url, tmp_path) -> AsyncIterator[Redrive]:
    from tests.stores.fresh import FreshStore  # noqa: PLC0415 - only where there is a driver

    opened = Redrive("memory://", store=FreshStore(url, tmp_path, None), sweep_seconds=0.1)
    await opened.open()
    yield opened
    await check_books(opened.store)
    await opened.close()


@pytest.fixture
async def connection(url) -> AsyncIterator:
    """A plain connection, and the users' own tables, empty."""
    import asyncpg  # noqa: PLC0415 - only where there is a driver
    from tests.sources.outbox.users import TABLES  # noqa: PLC0415

    opened = await asyncpg.connect(url)
    await opened.execute(TABLES)
    yield opened
    await opened.close()
