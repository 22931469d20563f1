"""The outbox in the user's own transaction, seen by OpenTelemetry, with every kind of driver."""

from __future__ import annotations

import asyncpg
import psycopg
import pytest
from tests.signals.otel.seen import Seen, is_child, traceparent

from redrive import Letter, Redrive


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
async def traced(url, tmp_path, seen):
    from tests.stores.fresh import FreshStore  # noqa: PLC0415 - only where there is a driver

    app = Redrive("memory://", store=FreshStore(url, tmp_path, None), tracing=seen.tracing)
    yield app
    await app.close()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_letter_of_a_transaction_belongs_to_the_trace_of_the_code_that_wrote_it(traced, seen, url, driver):
    letters: list[Letter] = []

    @traced.handler("order.paid")
    async def paid(letter: Letter) -> None:
        letters.append(letter)

    await traced.open()
    with seen.tracer.start_as_current_span("request"):
        if driver == "asyncpg":
            connection = await asyncpg.connect(url)
            async with connection.transaction():
                await traced.outbox(connection).enqueue("order.paid", {})
            await connection.close()
        else:
            with psycopg.connect(url) as blocking:
                traced.outbox(blocking).enqueue_many([traced.draft("order.paid", {})])
    await traced.run(until_idle=True)
    enqueued = seen.one("enqueue")
    assert is_child(enqueued, seen.one("request"))
    assert is_child(seen.one("handle"), enqueued)
    assert letters[0].metadata["traceparent"] == traceparent(enqueued)
