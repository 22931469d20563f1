"""Failed letters under a lens: every store answers as the rule in `core` says."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from tests.stores.conftest import ON_UNPOOLED_STORES
from tests.stores.samples import act, dead, draft, failure, give_up, letter_id, put, settle_all

from redrive.core.letter import Category
from redrive.core.query import LENSES, Query, parse
from redrive.core.query.lenses import place_of_origin, term_of, value_of
from redrive.sources.kafka.dead_letters.dialects import Account

WRITTEN = [  # by the sources, each as its source writes it
    Account(dialect="redrive", topic="orders", partition=3, offset=17).origin,
    Account(dialect="redrive", topic="orders", partition=12, offset=9).origin,
    Account(dialect="redrive", topic="orders").origin,
    Account(dialect="redrive", topic="orders-eu", partition=0, offset=1).origin,
    Account(dialect="redrive", partition=3, offset=17).origin,
    Account(dialect="redrive").origin,
    "pipeline:embed", "pipeline:embed/de", "pipeline:parse", "webhook:stripe", "outbox",
    "event:01939a3e-0000-7000-8000-000000000001", "event:01939a3e-0000-7000-8000-000000000002",
]  # fmt: skip
ODD = [
    None, "", "/", "//", "/ctx/sub", "s3://bucket/key", "s3://bucket", "file:///a/b", "import:2026-11-18", "event",
    "event/7", "bücher:größe/3", "𓀀/1", "a\0b/c", "\0/x", "x" * 700, "x" * 700 + "/1", "x" * 700 + "/2",
    "é" * 400 + "/3@1", "\x1aL" + "0" * 64, "100%_/1", "it's/1", 'a "b", c/1', "many words here/2",
]  # fmt: skip
ORIGINS = [*WRITTEN, *ODD]
_PIECES = ("/", "://", ":", "event:", "\0", "é", "a", "x" * 160)
COMBINED = ["".join(pieces) for size in (1, 2, 3) for pieces in product(_PIECES, repeat=size)]
ALL_JUDGED = "-payload.none:1"  # every letter fits, and a store must look at each to know it


async def put_from(store, origins: list[str | None]) -> None:
    await put(store, *(draft(str(n), origin=origin, failure=failure()) for n, origin in enumerate(origins)))


def places(origins: list[str | None]) -> Counter[str | None]:
    return Counter(None if origin is None else place_of_origin(origin) for origin in origins)


async def seen(store, lens: str, text: str = "", **options) -> list[tuple[str | None, int]]:
    return [(group.value, group.count) for group in await store.groups_by(lens, parse(text), **options)]


@pytest.mark.parametrize("text", ["", ALL_JUDGED])
async def test_letters_are_grouped_by_the_place_that_their_origin_names(store, text):
    await put_from(store, ORIGINS)
    found = await seen(store, "origin", text, limit=100)

    assert dict(found) == places(ORIGINS)
    assert dict(found)["kafka:orders"] == 3
    assert dict(found)["event"] == 4


@ON_UNPOOLED_STORES
async def test_the_database_and_the_rule_agree_on_every_combination(store):
    await put_from(store, COMBINED)

    assert dict(await seen(store, "origin", limit=1_000)) == places(COMBINED)


@ON_UNPOOLED_STORES
async def test_the_query_of_a_group_finds_exactly_its_letters(store):
    origins = [origin for origin in ORIGINS if "\0" not in (origin or "") and len(origin or "") < 500]
    await put_from(store, origins)
    for place in places(origins):
        expected = {letter_id(str(n)) for n, origin in enumerate(origins) if places([origin]) == {place: 1}}
        page = await store.find(parse(f"status:failed {term_of('origin', place)}"), limit=100)
        assert {letter.id for letter in page.letters} == expected, place


@ON_UNPOOLED_STORES
async def test_a_value_that_no_query_can_say_is_found_with_its_neighbours(store):
    await put_from(store, ORIGINS)
    for n, origin in enumerate(ORIGINS):
        if origin and ("\0" in origin or len(origin) > 500):
            page = await store.find(parse(str(term_of("origin", place_of_origin(origin)))), limit=100)
            assert letter_id(str(n)) in {letter.id for letter in page.letters}


@ON_UNPOOLED_STORES
@pytest.mark.parametrize("lens", LENSES)
async def test_each_lens_groups_by_its_own_field_and_its_query_finds_the_letters(store, lens):
    await put(
        store,
        draft("a", tenant="acme", origin="outbox", failure=failure(release="1.0")),
        draft("b", kind="invoice", tenant="acme", failure=failure(error_type="KeyError", release="1.1 rc")),
        draft("c", failure=failure(category=Category.NETWORK), tenant=""),
        draft(
            "d", kind="odd, *", tenant="x" * 700, origin="kafka:orders/3@17", failure=failure(error_type="", release="")
        ),
    )
    letters = (await store.find(parse("status:failed"))).letters
    groups = await store.groups_by(lens, Query())

    assert {group.value: group.count for group in groups} == Counter(value_of(letter, lens) for letter in letters)
    for group in groups:
        if group.value is None or len(group.value) < 500:
            found = await store.find(parse(str(term_of(lens, group.value))))
            assert {one.id for one in found.letters} == {
                one.id for one in letters if value_of(one, lens) == group.value
            }


@pytest.mark.parametrize("text", ["", ALL_JUDGED])
async def test_a_group_says_when_it_was_seen_how_many_ways_it_failed_and_the_most_frequent(store, clock, text):
    first = clock.wall_us()
    await dead(store, draft("a", origin="kafka:orders/0@1"), what=failure(fingerprint="t", template="timed out"))
    clock.advance(60)
    await dead(
        store,
        draft("b", origin="kafka:orders/0@2"),
        draft("c", origin="kafka:orders/1@2"),
        what=failure(fingerprint="b", template="no <text>"),
    )
    clock.advance(60)
    await dead(store, draft("d", origin="outbox"), what=failure(fingerprint="t"))
    orders, outbox = await store.groups_by("origin", parse(text))

    assert (orders.value, orders.count, orders.fingerprints, orders.title) == ("kafka:orders", 3, 2, "no <text>")
    assert (orders.first_seen_us, orders.last_seen_us) == (first, first + 60_000_000)
    assert (outbox.value, outbox.title, outbox.first_seen_us) == ("outbox", "timed out", clock.wall_us())


@pytest.mark.parametrize("text", ["", ALL_JUDGED])
async def test_the_biggest_comes_first_and_the_limit_holds(store, text):
    await put_from(store, ["b", "c/1", "c/2", "a", None, "c/3"])

    assert await seen(store, "origin", text) == [("c", 3), (None, 1), ("a", 1), ("b", 1)]
    assert await seen(store, "origin", text, limit=2) == [("c", 3), (None, 1)]


async def test_a_lens_shows_failed_letters_that_the_query_finds_and_no_others(store):
    await put_from(store, ["a/1", "a/2", "b/1"])
    await put(store, draft("waits", origin="a/3"), draft("mail", kind="mail", origin="a/4", failure=failure("no mail")))
    await act(store, "archive", "1")

    assert await seen(store, "origin") == [("a", 2), ("b", 1)]
    assert await seen(store, "origin", "kind:mail") == [("a", 1)]
    assert await seen(store, "origin", "status:failed error:~MAIL") == [("a", 1)]
    assert await seen(store, "origin", "failed:<1h -kind:mail") == [("a", 1), ("b", 1)]
    assert await seen(store, "origin", "status:pending") == []


async def test_letters_of_one_fingerprint_that_failed_again_after_a_replay_are_seen_from_then_on(store, clock):
    await dead(store, draft("a", origin="outbox"))
    clock.advance(60)
    await act(store, "replay", "a")
    await settle_all(store, give_up())
    [group] = await store.groups_by("origin", Query())

    assert (group.first_seen_us, group.last_seen_us) == (clock.wall_us(),) * 2
