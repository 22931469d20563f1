"""
What a type checker says about the calls that users write; mypy reads this file, nobody runs it.

A wrong call carries the error that it must give: mypy reports an ignore that is not needed, so a call that stops being
an error fails the test too.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, assert_type

from redrive import Priority, Redrive, RetryPolicy
from redrive.core.letter import Letter
from redrive.desk.act.acts import Done
from redrive.desk.look.group import GroupView
from redrive.desk.look.lens import LensView
from redrive.desk.look.stats import Stats
from redrive.desk.look.views import LetterSheet, Listing
from redrive.stores.contract import Page, Receipt

if TYPE_CHECKING:
    from redrive.core.letter import Draft
    from redrive.sources.outbox.face import AsyncOutbox, Outbox

app = Redrive("memory://", lease_seconds=30)


async def sending() -> None:
    receipt = await app.enqueue(
        "order.created",
        {"order": 17},
        key="c9",
        idempotency_key="o17",
        delay=1.5,
        due_at=datetime(2026, 1, 1, tzinfo=UTC),
        priority="high",
        queue="orders",
        policy=RetryPolicy.NEVER,
        after=["01890000-0000-7000-8000-000000000001"],
        metadata={"source": "test"},
        headers=[("traceparent", b"00")],
        tenant="acme",
        origin="import",
        generation=2,
        id="01890000-0000-7000-8000-000000000002",
        content_type=None,
    )
    assert_type(receipt, Receipt)
    draft: Draft = app.draft("order.created", b"\x00", priority=Priority.LOW, content_type="image/png")
    assert_type(await app.enqueue_many([draft]), list[Receipt])

    await app.enqueue("order.created", 1, kye="c9")  # type: ignore[call-arg]
    await app.enqueue("order.created", 1, key=9)  # type: ignore[arg-type]
    await app.enqueue("order.created", 1, delay="soon")  # type: ignore[arg-type]
    await app.enqueue("order.created")  # type: ignore[call-arg]
    app.draft("order.created", 1, due_at="tomorrow")  # type: ignore[arg-type]
    await app.enqueue_many(["order.created"])  # type: ignore[list-item]


async def in_a_transaction(blocking: Outbox, awaited: AsyncOutbox) -> None:
    assert_type(blocking.enqueue("order.created", 1, key="c9", tenant="acme"), Receipt)
    assert_type(await awaited.enqueue("order.created", 1, delay=5), Receipt)

    blocking.enqueue("order.created", 1, kye="c9")  # type: ignore[call-arg]
    await awaited.enqueue("order.created", 1, tenant=5)  # type: ignore[arg-type]


def declaring() -> None:
    app.queue("orders", concurrency=4, ordered=True, max_size=10, rate=2.5, max_in_flight=3, retry_budget=True)
    app.breaker("payments", failures=3, ratio=0.2, window=30.0, open_for=5, probes=1)

    @app.handler("order.created", queue="orders", policy="linear", timeout=5, concurrency=2, breaker="payments")
    async def ship(order: dict[str, int], letter: Letter) -> None: ...

    app.queue("orders", concurency=4)  # type: ignore[arg-type]
    app.queue("orders", rate="fast")  # type: ignore[arg-type]
    app.breaker("payments", failure=3)  # type: ignore[call-arg]
    app.breaker("payments", failures="many")  # type: ignore[arg-type]
    app.handler("order.created", retries=3)  # type: ignore[call-arg]
    app.handler("order.created", engine="fork")  # type: ignore[arg-type]


async def operating() -> None:
    assert_type(await app.desk.show("0190"), Letter)
    assert_type(await app.desk.ls("status:failed", limit=5), Page)
    assert_type(await app.desk.listing("status:failed"), Listing)
    assert_type(await app.desk.sheet("0190"), LetterSheet)
    assert_type(await app.desk.groups(), list[GroupView])
    assert_type(await app.desk.groups("kind:order.*", by="origin"), list[LensView])
    assert_type(await app.desk.replay(query="status:failed", limit=5, rate=2.0, generation=1), Done)

    await app.desk.replay(quarry="status:failed")  # type: ignore[call-arg]
    await app.desk.ls(limit="all")  # type: ignore[arg-type]
    await app.desk.groups(by="colour")  # type: ignore[call-overload]
    await app.desk.shwo("0190")  # type: ignore[attr-defined]


def without_await() -> None:
    assert_type(app.sync.enqueue("order.created", 1, key="c9"), Receipt)
    assert_type(app.sync.run(until_idle=True), bool)
    assert_type(app.sync.desk.show("0190"), Letter)
    assert_type(app.sync.desk.stats(), Stats)
    assert_type(app.sync.desk.replay("0190", reason="fixed"), Done)

    app.sync.enqueue("order.created", 1, kye="c9")  # type: ignore[call-arg]
    app.sync.desk.replay(quarry="status:failed")  # type: ignore[call-arg]
    app.sync.nothing()  # type: ignore[attr-defined]
