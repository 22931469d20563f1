"""A letter looks the same whichever store keeps it."""

from __future__ import annotations

import pytest
from tests.stores.samples import (
    OPERATOR,
    act,
    after,
    claim,
    draft,
    find_all,
    get,
    letter_id,
    names,
    order_lane,
    ordered,
    put,
    release,
    settle_all,
)

from redrive.core.letter import Status
from redrive.core.query import parse
from redrive.errors import LetterNotFound


async def test_after_names_the_letter_that_is_kept_where_a_duplicate_was_meant(store):
    await put(store, draft("a", idempotency_key="k"))
    metadata = {"text": 'a " and \\ and \0 and 🙂', "after": [letter_id("b")]}
    last = after("d", "c", "b", "a", metadata=metadata, headers=(("h", b"\0\xff"),))
    await store.put([draft("b", idempotency_key="k"), draft("c"), last])
    letter = await get(store, "d")
    assert letter.after == (letter_id("c"), letter_id("a"), letter_id("a"))
    assert (letter.metadata, letter.headers, letter.waits_for) == (metadata, last.headers, 2)


async def test_an_id_that_two_drafts_share_means_the_first_of_them_to_those_that_wait_for_it(store):
    await put(store, draft("a", idempotency_key="k"))
    await store.put([draft("b", idempotency_key="k"), draft("b"), after("c", "b")])
    assert (await get(store, "c")).after == (letter_id("a"),)


async def test_only_a_pending_letter_waits_for_others(store):
    await put(store, "a", after("b", "a"))
    [cancelled] = await act(store, "cancel", "b")
    assert (cancelled.waits_for, (await get(store, "b")).waits_for) == (0, 0)
    assert [letter.waits_for for letter in await find_all(store)] == [0, 0]
    [restored] = await act(store, "restore", "b")
    assert (restored.waits_for, (await get(store, "b")).waits_for) == (1, 1)


async def test_what_an_act_or_an_edit_returns_says_for_how_many_a_letter_waits(store):
    await order_lane(store)
    await put(store, ordered("a"))
    await put(store, ordered("b"), after("c", "a"))
    edited = await store.edit(letter_id("b"), b"{}", "application/json", version=1, **OPERATOR)
    assert edited.waits_for == 1
    await act(store, "cancel", "a", "b", "c")
    restored = await act(store, "restore", "b", "a", "c")
    assert [letter.waits_for for letter in restored] == [1, 0, 1]
    await act(store, "cancel", "c")
    assert [letter.waits_for for letter in await act(store, "purge", "c")] == [0]


@pytest.mark.parametrize("fields", [{}, {"tenant": "t"}, {"metadata": {"a": 1}}], ids=["plain", "named", "with extras"])
async def test_a_claim_says_why_its_letter_is_pending(store, fields):
    await put(store, draft("a", **fields))
    assert [found.letter.why for found in await claim(store)] == ["enqueued"]


async def test_a_claim_of_a_letter_that_came_back_says_why(store):
    await put(store, "a", "b")
    await act(store, "cancel", "b")
    await settle_all(store, release())
    await act(store, "restore", "b")
    found = {names([each])[0]: each.letter.why for each in await claim(store)}
    assert found == {"a": "interrupted", "b": "restored by ada"}


async def test_an_id_in_capitals_means_the_same_letter(store):
    name = letter_id("a").upper()
    await store.put([draft("b", id=letter_id("b").upper()), draft("a"), draft("c", after=(name,))])
    assert {letter.id for letter in await find_all(store)} == set(map(letter_id, "abc"))
    assert (await get(store, "c")).after == (letter_id("a"),)
    assert (await store.get(name)).id == letter_id("a")
    assert await store.standing(name) is not None
    edited = await store.edit(name, b"{}", "application/json", version=1, **OPERATOR)
    assert edited.id == letter_id("a")
    [cancelled] = await store.act("cancel", [name, letter_id("a"), name.replace("-", "")], **OPERATOR)
    assert cancelled.status is Status.ARCHIVED
    assert {(entry.target, entry.count) for entry in await store.audit()} == {(letter_id("a"), 1)}
    with pytest.raises(LetterNotFound):
        await store.act("cancel", [letter_id("d").upper()], **OPERATOR)


async def test_a_duplicate_in_capitals_is_one(store):
    await put(store, "a")
    [receipt] = await store.put([draft("a", id=letter_id("a").upper())])
    assert (receipt.id, receipt.duplicate) == (letter_id("a"), True)


async def test_a_page_of_nothing_has_no_cursor(store):
    await put(store, "a", "b")
    page = await store.find(parse(""), limit=0)
    assert (page.letters, page.cursor) == ([], None)


async def test_no_claim_is_younger_than_nothing_after_the_clock_was_set_back(store, clock):
    await put(store, draft("a", due_us=0), draft("b", due_us=0, tenant="t"))
    clock.jump(-3600)
    assert [found.age for found in await claim(store)] == [0, 0]
    clock.advance(100)
    assert [found.age for found in await store.expired(10)] == [0, 0]
