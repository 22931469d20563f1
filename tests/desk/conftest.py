"""Each kind of store with a clock that only the test moves, and short ways to fill it."""

from __future__ import annotations

from uuid import NAMESPACE_OID, uuid5

import pytest
from tests.stores.conftest import open_store

from redrive.core.letter import Category, Draft, Failure, Status
from redrive.core.moves import Move
from redrive.core.policy import RetryPolicy
from redrive.stores.clock import ManualClock
from redrive.stores.contract import Store, Want


class Mill:
    """Puts letters into a store and brings them where a test wants them."""

    def __init__(self, store: Store, clock: ManualClock | None) -> None:
        self.store, self.clock = store, clock
        self._count = 0

    async def pending(self, kind: str = "order.created", payload: bytes = b'{"order":17}', **fields) -> str:
        self._count += 1
        draft = Draft(
            id=str(uuid5(NAMESPACE_OID, f"{kind}-{self._count}")), queue="default", kind=kind, payload=payload, **fields
        )
        [receipt] = await self.store.put([draft])
        return receipt.id

    async def failed(
        self, kind: str = "order.created", payload: bytes = b'{"order":17}', error: str = "boom", **traits
    ) -> str:
        letter_id = await self.pending(kind, payload)
        await self.settle(kind, Move(Status.FAILED, "exhausted", failure=failure(error, **traits)))
        return letter_id

    async def delivered(self, kind: str = "order.created") -> str:
        letter_id = await self.pending(kind)
        await self.settle(kind, Move(Status.DELIVERED, "succeeded"))
        return letter_id

    async def settle(self, kind: str, move: Move) -> None:
        [claim] = await self.store.claim([Want("default", (kind,), 1)], lease=60, worker="w1")
        assert await self.store.settle([(claim, move)]) == (True,)


def failure(
    message: str = "boom",
    *,
    error_type: str = "ValueError",
    category: Category = Category.TRANSIENT,
    fingerprint: str = "f1",
    **fields,
) -> Failure:
    return Failure(
        error_type=error_type,
        message=message,
        category=category,
        rule="unknown errors are transient",
        fingerprint=fingerprint,
        template=message,
        **fields,
    )


POLICY = RetryPolicy.exponential(first=10, cap=25, max_attempts=4, jitter="none")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request, clock, tmp_path):
    async with open_store(request.param, tmp_path, clock) as opened:
        yield opened


@pytest.fixture
def mill(store, clock):
    return Mill(store, clock)
