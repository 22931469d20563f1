"""The memory store says once, and loudly, that it is not durable, unless a test drives it."""

from __future__ import annotations

import logging

from redrive import Redrive
from redrive.testing import drive


def warnings(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_an_application_on_memory_is_warned_once_however_often_it_opens(caplog):
    app = Redrive("memory://")
    for _ in range(2):
        async with app:
            await app.enqueue("order.created", {})
    (warning,) = warnings(caplog)
    assert "they are lost when it ends" in warning
    assert "sqlite:///" in warning  # the way out


async def test_a_test_that_drives_an_application_is_not_warned(caplog):
    app = Redrive("memory://")
    app.add_handler("order.created", print)
    async with drive(app) as test:
        await app.enqueue("order.created", {})
        assert len(await test.letters()) == 1
    assert warnings(caplog) == []
