"""What the server refuses is told without what was to be written: neither in a message nor in a traceback."""

from __future__ import annotations

import traceback

import pytest
from msgspec import structs
from tests.stores.samples import draft, put

from redrive.errors import QueueFull, StoreError
from redrive.stores.contract import QueueSpec

CARD = "-".join(["4929"] * 2)


def told(error: BaseException) -> str:
    """Return everything that a log would show of *error*."""
    causes = [error.__cause__, None if error.__suppress_context__ else error.__context__]
    return "".join(traceback.format_exception(error)) + "".join(map(str, causes))


async def test_a_refusal_does_not_quote_the_row(store, connection):
    await connection.execute(
        "ALTER TABLE redrive.outbox ADD CONSTRAINT ours CHECK (content_type <> 'secret') NOT VALID"
    )
    try:
        with pytest.raises(StoreError, match=r'23514: .* violates check constraint "ours"') as refused:
            await put(store, draft("a", payload=CARD.encode(), content_type="secret"))
    finally:
        await connection.execute("ALTER TABLE redrive.outbox DROP CONSTRAINT ours")
    assert CARD not in told(refused.value)
    assert CARD.encode().hex() not in told(refused.value)


async def test_a_value_that_the_driver_cannot_send_is_not_quoted(store):
    spoilt = draft("a")
    structs.force_setattr(spoilt, "payload", CARD)  # text, where bytes are promised
    with pytest.raises(StoreError, match="22000") as refused:
        await put(store, spoilt)
    assert CARD not in told(refused.value)


async def test_a_value_that_the_server_cannot_read_is_not_quoted(store, connection):
    await connection.execute(
        "CREATE FUNCTION redrive.spoil() RETURNS trigger LANGUAGE plpgsql "
        "AS 'BEGIN PERFORM convert_from(NEW.payload, ''UTF8'')::integer; RETURN NEW; END';"
        "CREATE TRIGGER spoil BEFORE INSERT ON redrive.outbox FOR EACH ROW EXECUTE FUNCTION redrive.spoil()"
    )
    try:
        with pytest.raises(StoreError, match="22P02") as refused:
            await put(store, draft("a", payload=CARD.encode()))
    finally:
        await connection.execute("DROP TRIGGER spoil ON redrive.outbox; DROP FUNCTION redrive.spoil")
    assert CARD not in told(refused.value)


async def test_a_full_queue_quotes_no_letter(store):
    await store.declare([QueueSpec(name="small", max_size=1)])
    await put(store, draft("a", queue="small"))
    with pytest.raises(QueueFull) as refused:
        await put(store, draft("b", queue="small", payload=CARD.encode()))
    assert CARD not in told(refused.value)
