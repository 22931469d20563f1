"""Those who open, declare and migrate at the same time."""

from __future__ import annotations

import asyncio

from redrive.stores.postgres import PostgresStore


async def test_of_many_that_open_an_empty_database_one_makes_the_schema(url, store, connection):
    for turn in range(3):
        schema = f"racing {turn}"
        await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        stores = [PostgresStore(url, schema=schema, listen=False) for _ in range(5)]
        await asyncio.gather(*(each.open() for each in stores))
        for each in stores:
            await each.close()
        await connection.execute(f'DROP SCHEMA "{schema}" CASCADE')
