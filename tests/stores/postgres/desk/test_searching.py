"""Searching error texts: the same letters with the index of trigrams and without, and quickly with it."""

from __future__ import annotations

import os

import pytest
from tests.servers import contrib
from tests.servers.postgres import NO_DISK, Missing, running
from tests.stores.conftest import server_url
from tests.stores.samples import dead, draft, failure, find_all, names

from redrive.stores.memory import MemoryStore

asyncpg = pytest.importorskip("asyncpg")

TEXTS = {
    "plain": "Connection TIMED OUT after 3 s",
    "dotted": "T\u0130MED out",  # its lower case is an i and a dot
    "kelvin": "300 \u212aelvin",  # its lower case is a k
    "quotes": "say \"no\" or 'yes' \\ 100% of_it",
    "nul": "a \x00 timed out",
    "long": "x" * 3_000 + " timed out",
    "short": "ti",
    "other": "no such order",
}
QUERIES = ('error:~"timed out"', "error:~kelvin", "error:~ti", 'error:~"100% of_it"', 'error:~"\\\\"', "error:~zzz",
           "error:~timed,kelvin", "-error:~timed", 'error:~"T\u0130MED"', "error:~%", "error:~_")  # fmt: skip


@pytest.fixture(params=[pytest.param("trigrams", marks=pytest.mark.slow), "scan"])
def where(request):
    """A server that has pg_trgm, and one that has not."""
    if request.param == "scan":
        yield server_url()
        return
    server_url()
    try:
        with running(contrib.binaries(), **NO_DISK) as server:
            yield server.url
    except Missing as missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))


@pytest.fixture
async def searched(where, tmp_path):
    from tests.stores.fresh import FreshStore  # noqa: PLC0415 - only where there is a driver

    store = FreshStore(where, tmp_path, None)
    await store.open()
    yield store
    await store.close()


async def test_a_search_finds_what_the_memory_store_finds(searched, where):
    connection = await asyncpg.connect(where)
    for way in ("enable_seqscan", "enable_indexscan"):  # so few letters would be read without asking an index
        await connection.execute(f"ALTER DATABASE postgres SET {way} = off")
    await searched.close()
    await searched.open()
    memory = MemoryStore()
    await memory.open()
    for store in (memory, searched):
        for name, text in TEXTS.items():
            await dead(store, name, what=failure(text))
    for query in QUERIES:
        found = [names(await find_all(store, f"status:failed {query}")) for store in (memory, searched)]
        assert found[0] == found[1], query
    assert names(await find_all(searched, "status:failed error:~timed")) == ["long", "nul", "plain"]
    await memory.close()
    await connection.execute("ALTER DATABASE postgres RESET ALL")
    await connection.close()


async def test_the_store_says_whether_it_has_the_index_and_the_server_uses_it(searched, where):
    connection = await asyncpg.connect(where)
    has = await connection.fetchval("SELECT count(*) > 0 FROM pg_available_extensions WHERE name = 'pg_trgm'")
    assert searched.features.search is has
    assert not await connection.fetch("SELECT * FROM redrive.outbox_missing_indexes()")
    if has:
        await searched.put([draft(str(n), failure=failure(f"host {n} is away")) for n in range(3_000)])
        await connection.execute("VACUUM ANALYZE redrive.outbox")
        plan = await connection.fetch(
            "EXPLAIN SELECT seq FROM redrive.outbox WHERE status = 'failed' "
            r"AND (last_error ILIKE '%host 777 %' OR last_error ~ U&'[\0130\212A]') ORDER BY seq DESC LIMIT 200"
        )
        assert "outbox_failed_error" in "\n".join(row[0] for row in plan)
        assert len(await find_all(searched, 'status:failed error:~"host 777 "')) == 1
    await connection.close()
