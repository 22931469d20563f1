"""Applications whose letters are claimed ahead."""

from __future__ import annotations

import asyncio

import pytest
from tests.engine.starting import soon

from redrive import Redrive


@pytest.fixture
def few():
    """An application with two slots."""
    return Redrive("memory://", concurrency=2)


@pytest.fixture
def slow_from(few):
    """Handlers of *few* that are quick until a letter has the number `first`; then they wait for `gate`."""

    class SlowFrom:
        first, gate = 6, asyncio.Event()
        began: list[int] = []  # noqa: RUF012 - a class of its own for each test

    @few.handler("order.created")
    async def ship(order: dict):
        SlowFrom.began.append(order["n"])
        if order["n"] >= SlowFrom.first:
            await soon(SlowFrom.gate.wait())

    return SlowFrom
