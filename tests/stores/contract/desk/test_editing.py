from __future__ import annotations

import pytest
from tests.stores.samples import DELIVERED, act, claim, dead, get, letter_id, put, settle_all

from redrive.core.letter import BYTES, Status
from redrive.errors import EditConflict, LetterNotFound, MoveRefused

WHO = {"by": "grace", "reason": "wrong currency"}


async def edit(store, name: str = "a", payload: bytes = b"new", *, version: int = 1):
    return await store.edit(letter_id(name), payload, BYTES, version=version, **WHO)


async def test_an_edit_replaces_the_payload_and_only_that(store, clock):
    await dead(store, "a")
    before = await get(store, "a")
    clock.advance(1)
    returned = await edit(store)
    letter = await get(store, "a")

    assert returned == letter
    assert (letter.payload, letter.content_type, letter.payload_version) == (b"new", BYTES, 2)
    assert letter.token > before.token
    for field in ("status", "attempts", "last_error", "fingerprint", "failed_us", "tries", "cycles", "created_us"):
        assert getattr(letter, field) == getattr(before, field), field


async def test_an_edited_letter_is_what_a_replay_sends(store):
    await dead(store, "a")
    await edit(store)
    await act(store, "replay", "a")
    [claimed] = await claim(store)
    assert (claimed.letter.payload, claimed.letter.content_type) == (b"new", BYTES)
    assert (await get(store, "a")).payload_version == 2


async def test_of_two_edits_of_one_version_the_second_is_refused(store):
    await dead(store, "a")
    await edit(store, payload=b"first")
    with pytest.raises(EditConflict, match=r"version 1.*version 2"):
        await edit(store, payload=b"second")
    assert (await get(store, "a")).payload == b"first"
    assert (await edit(store, payload=b"second", version=2)).payload_version == 3


@pytest.mark.parametrize("large", [b"x" * 200_000, b"", b"\0\xff"])
async def test_payloads_grow_and_shrink_by_edits(store, large):
    await dead(store, "a")
    await edit(store, payload=large)
    assert (await get(store, "a")).payload == large
    await edit(store, payload=b"small", version=2)
    assert (await get(store, "a")).payload == b"small"


async def test_pending_and_archived_letters_can_be_edited(store):
    await put(store, "a")
    assert (await edit(store)).status is Status.PENDING
    await act(store, "cancel", "a")
    assert (await edit(store, version=2)).status is Status.ARCHIVED


@pytest.mark.parametrize("current", ["in_flight", "delivered"])
async def test_a_letter_under_way_or_delivered_cannot_be_edited(store, current):
    await put(store, "a")
    if current == "in_flight":
        await claim(store)
    else:
        await settle_all(store, DELIVERED)
    with pytest.raises(MoveRefused, match=f"cannot edit letter {letter_id('a')!r}: it is {current}"):
        await edit(store)
    assert (await get(store, "a")).payload == b"a"


async def test_an_unknown_letter_cannot_be_edited(store):
    with pytest.raises(LetterNotFound):
        await edit(store, "unknown")


async def test_an_edit_is_audited_and_a_refused_one_is_not(store):
    await dead(store, "a")
    await edit(store)
    with pytest.raises(EditConflict):
        await edit(store)
    [entry] = await store.audit()
    assert (entry.by, entry.verb, entry.target, entry.count, entry.reason) == (
        "grace", "edit", letter_id("a"), 1, "wrong currency"
    )  # fmt: skip


async def test_a_message_about_an_edit_never_shows_the_payload(store):
    await dead(store, "a")
    with pytest.raises(EditConflict) as refused:
        await edit(store, payload=b"secret", version=9)
    assert "secret" not in str(refused.value)


async def test_an_edit_while_a_plan_runs_takes_the_letter_out_of_it(store):
    await put(store, "a")
    before = await get(store, "a")
    await edit(store)
    assert (await get(store, "a")).token > before.token
