"""What the server refuses is told without what was to be written."""

from __future__ import annotations

import pytest
from tests.stores.samples import draft, put

from redrive.errors import StoreError


async def test_a_refusal_does_not_quote_the_row(store, connection):
    await connection.execute(
        "ALTER TABLE redrive.outbox ADD CONSTRAINT ours CHECK (content_type <> 'secret') NOT VALID"
    )
    try:
        with pytest.raises(StoreError, match='violates check constraint "ours"') as refused:
            await put(store, draft("a", payload=b"4929-1111", content_type="secret"))
    finally:
        await connection.execute("ALTER TABLE redrive.outbox DROP CONSTRAINT ours")
    assert b"4929-1111".hex() not in str(refused.value)
