from __future__ import annotations

import msgspec
import pytest
from tests.stores.samples import (
    DELIVERED,
    act,
    claim,
    dead,
    draft,
    failure,
    find_all,
    get,
    letter_id,
    lost,
    names,
    put,
    settle_all,
)

from redrive.core.letter import Category, Priority
from redrive.core.query import parse
from redrive.errors import QueryError


async def test_get_returns_none_for_what_is_not_kept(store):
    assert await store.get(letter_id("a")) is None
    assert await store.get("no id at all") is None


async def test_pages_are_newest_first_and_miss_nothing(store):
    await put(store, *(str(n) for n in range(23)))
    assert names(await find_all(store, limit=5)) == [str(n) for n in reversed(range(23))]


@pytest.mark.parametrize("size", [4, 5, 6])
async def test_the_last_page_has_no_cursor(store, size):
    await put(store, *(str(n) for n in range(5)))
    page = await store.find(parse(""), limit=size)
    assert len(page.letters) == min(5, size)
    assert (page.cursor is None) == (size >= 5)


async def test_letters_put_between_two_pages_do_not_move_the_second(store):
    await put(store, *"abcd")
    first = await store.find(parse(""), limit=2)
    await put(store, "new")
    second = await store.find(parse(""), cursor=first.cursor, limit=2)
    assert names(first.letters + second.letters) == ["d", "c", "b", "a"]


async def test_finding_nothing_is_an_empty_page(store):
    page = await store.find(parse("status:failed"))
    assert (page.letters, page.cursor) == ([], None)


@pytest.mark.parametrize("cursor", ["abc", "", "-1", "1.5", "9" * 40, "\u0661", "1 OR 1", "\ud800"])
async def test_a_cursor_that_no_page_ended_with_is_refused_clearly(store, cursor):
    await put(store, "a")
    with pytest.raises(QueryError, match="cannot go on from the cursor"):
        await store.find(parse(""), cursor=cursor)


@pytest.mark.parametrize("size", [4, 8, 12, 13, 20, 35])
async def test_the_end_of_an_id_finds_its_letter(store, size):
    await put(store, *"abcdef")
    end = letter_id("c")[-size:]
    assert names(await find_all(store, f"id:*{end}")) == ["c"]
    assert names(await find_all(store, f"id:{end}")) == ["c"]
    assert names(await find_all(store, f"id:{end.upper()}")) == ["c"]
    assert names(await find_all(store, f"id:{end},{letter_id('a')}")) == ["c", "a"]
    assert names(await find_all(store, f"-id:{end}")) == ["f", "e", "d", "b", "a"]


@pytest.mark.parametrize("text", ["id:ffffffff", "id:*ffffffff", "id:*zzzz", 'id:"*"', "id:abc", "id:*,abc"])
async def test_an_end_that_no_id_has_finds_nothing_else(store, text):
    await put(store, *"abcdef")
    assert sorted(names(await find_all(store, text))) == (list("abcdef") if text == "id:*,abc" else [])


QUERIES = {
    "": "abcdef",
    "status:failed": "ab",
    "status:failed,archived": "abc",
    "-status:failed": "cdef",
    "status:in_flight": "e",
    "status:delivered": "d",
    "status:pending": "f",
    "kind:order.*": "acdef",
    "kind:invoice": "b",
    "queue:other": "f",
    "queue:work kind:order.created": "acde",
    f"id:{letter_id('c')}": "c",
    "error:~TIMED": "a",
    "timed": "a",
    "error_type:TimeoutError": "a",
    "type:Key*": "b",
    "category:network": "a",
    "category:network,validation": "ab",
    "group:7f3": "a",
    "attempts:>0": "ade",
    "attempts:0": "bcf",
    "priority:high": "f",
    "key:*": "f",
    "-key:*": "abcde",
    "key:customer-9": "f",
    "idempotency_key:order-17": "f",
    "tenant:acme": "f",
    "origin:kafka*": "f",
    "generation:>=2": "f",
    "header.source:shop": "f",
    "metadata.user.id:42": "f",
    "payload.order:17": "f",
    "payload.lines.0.sku:x*": "f",
    "age:>1h": "ab",
    "age:<1h": "cdef",
    "failed:>30m": "ab",
    "due:>5m": "f",
    "status:failed error:~timed kind:order.*": "a",
    "status:failed kind:nothing": "",
}


async def one_of_each(store, clock) -> None:
    await dead(
        store,
        "a",
        what=failure("it timed out", error_type="TimeoutError", category=Category.NETWORK, fingerprint="7f3a"),
    )
    what = failure("no 'id'", error_type="KeyError", category=Category.VALIDATION, fingerprint="99")
    await put(store, draft("b", kind="invoice", failure=what))
    clock.advance(3_700)
    await put(store, "c")
    await act(store, "cancel", "c")
    await put(store, "d")
    await settle_all(store, DELIVERED)
    await put(store, "e")
    await claim(store)
    await put(
        store,
        draft(
            "f",
            queue="other",
            payload=b'{"order": 17, "lines": [{"sku": "x1"}]}',
            key="customer-9",
            idempotency_key="order-17",
            priority=Priority.HIGH,
            tenant="acme",
            origin="kafka:orders/3@17",
            generation=2,
            headers=(("source", b"shop"),),
            metadata={"user": {"id": 42}},
            delay=600,
        ),
    )


@pytest.mark.parametrize(("text", "expected"), QUERIES.items())
async def test_every_store_means_the_same_by_a_query(store, clock, text, expected):
    await one_of_each(store, clock)
    wanted = {letter_id(name) for name in expected}
    found = await find_all(store, text, limit=2)
    assert {letter.id for letter in found} == wanted
    assert len(found) == len(wanted)
    assert await store.count(parse(text)) == len(wanted)
    query = parse(text)
    assert wanted == {letter.id for letter in await find_all(store) if query.matches(letter, clock.wall_us())}


async def test_a_count_stops_where_it_is_told_to(store):
    await put(store, *(str(n) for n in range(12)))
    assert await store.count(parse("")) == 12
    assert await store.count(parse("status:pending"), at_most=7) == 7
    assert await store.count(parse("status:pending"), at_most=12) == 12
    assert await store.count(parse("status:failed"), at_most=7) == 0


async def test_the_oldest_failed_letter_is_the_one_that_has_waited_longest(store, clock):
    assert await store.oldest_failed() is None
    await dead(store, "a")
    clock.advance(10)
    await dead(store, "b")
    clock.advance(10)
    await dead(store, "c")
    assert await store.oldest_failed() == await get(store, "a")
    await act(store, "replay", "a")
    assert await store.oldest_failed() == await get(store, "b")


LARGE = b'{"id": 42, "pad": "' + b"x" * 10_000 + b'"}'  # large enough for a place of its own


@pytest.mark.parametrize("payload", [b'{"id": 42}', LARGE], ids=["small", "large"])
async def test_a_listing_can_leave_out_the_payloads(store, payload):
    await put(store, draft("a", payload=payload), draft("b", payload=b"{}"))
    whole = await store.find(parse("payload.id:42"))
    lean = await store.find(parse("payload.id:42"), payloads=False)  # it may still be searched
    assert [letter.payload for letter in whole.letters] == [payload]
    assert lean.letters == [msgspec.structs.replace(letter, payload=b"") for letter in whole.letters]
    everything = await store.find(parse(""), payloads=False)
    assert [(letter.id, letter.payload) for letter in everything.letters] == [(letter_id(n), b"") for n in "ba"]


async def test_a_claim_whose_lease_ended_is_told_without_its_payload(store, clock):
    await put(store, draft("a", payload=LARGE))
    await claim(store, lease=10.0)
    clock.advance(11)
    [lost_claim] = await store.expired(10)
    assert (lost_claim.letter.id, lost_claim.letter.payload) == (letter_id("a"), b"")
    assert await store.settle([(lost_claim, lost())]) == (True,)
    assert (await get(store, "a")).payload == LARGE
