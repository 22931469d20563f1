from __future__ import annotations

import pytest
from tests.desk.conftest import failure

from redrive.desk.desk import Desk
from redrive.errors import QueryError


async def failed(mill, origin, fingerprint="f1", error="boom") -> str:
    told = failure(error, fingerprint=fingerprint)
    return await mill.pending(origin=origin, failure=told)


async def test_groups_by_a_lens_come_with_the_query_that_finds_their_letters(store, mill):
    desk = Desk(store)
    orders = {await failed(mill, f"kafka:orders/3@{n}", fingerprint=f"f{n}", error="no stock") for n in range(3)}
    await failed(mill, "kafka:orders-eu/0@1", fingerprint="f9")

    first, second = await desk.groups("kind:order.*", by="origin")

    assert (first.value, first.count, first.fingerprints, first.title) == ("kafka:orders", 3, 3, "no stock")
    assert (second.value, second.count, second.fingerprints) == ("kafka:orders-eu", 1, 1)
    assert first.query == "status:failed kind:order.* origin:kafka:orders,kafka:orders/*"
    assert {letter.id for letter in (await desk.ls(first.query)).letters} == orders
    assert first.first_seen_at <= first.last_seen_at
    assert [group.count for group in await desk.groups(first.query)] == [1, 1, 1]


async def test_a_query_says_nothing_twice(store, mill):
    await failed(mill, None)

    [group] = await Desk(store).groups("status:failed -origin:*", by="origin")

    assert (group.value, group.query) == (None, "status:failed -origin:*")


async def test_the_limit_holds_and_an_unknown_lens_is_refused(store, mill):
    for origin in ("a", "b"):
        await failed(mill, origin)

    assert [group.value for group in await Desk(store).groups(by="origin", limit=1)] == ["a"]
    with pytest.raises(QueryError, match="cannot group by 'colour'"):
        await Desk(store).groups(by="colour")


async def test_by_fingerprint_is_what_groups_do_anyway(store, mill):
    await failed(mill, "outbox")

    assert await Desk(store).groups(by="fingerprint") == await Desk(store).groups()
