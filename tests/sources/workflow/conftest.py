"""A queue of failed workflows on every store, with a clock that the test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.stores.conftest import open_store
from tests.stores.samples import check_books

from redrive import Redrive
from redrive.stores.clock import ManualClock
from redrive.workflow import DeadLetterQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STORES = ["memory", "sqlite", "postgres"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=STORES)
async def app(request, tmp_path, clock) -> AsyncIterator[Redrive]:
    async with open_store(request.param, tmp_path, clock) as store:
        yield Redrive(store=store)
        await check_books(store)


@pytest.fixture
def dlq(app) -> DeadLetterQueue:
    return DeadLetterQueue(store=app)
