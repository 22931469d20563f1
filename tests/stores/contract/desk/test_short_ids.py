"""The end of an id names a letter, for every verb and on every store."""

from __future__ import annotations

import pytest
from tests.stores.samples import dead, draft, letter_id, put, status

from redrive.core.letter import Status
from redrive.core.letter.ids import short
from redrive.desk.desk import Desk
from redrive.errors import AmbiguousId, LetterNotFound

TWINS = ("0190f3a0-0000-7000-8000-00001234abcd", "0190f3a0-0000-7000-8000-00011234abcd")


@pytest.fixture
def desk(store):
    return Desk(store, by="ada")


async def test_every_verb_takes_the_end_of_an_id(desk, store):
    await dead(store, "a")
    end = short(letter_id("a"))
    assert len(end) == 8
    assert (await desk.show(end)).id == letter_id("a")
    assert (await desk.explain(end)).id == letter_id("a")
    assert (await desk.what_if(end, "never")).id == letter_id("a")
    assert (await desk.get_dlq_event_detail(end)).event.event_id == letter_id("a")
    assert (await desk.edit(end, b"2", version=1)).id == letter_id("a")
    assert (await desk.replay(end)).acted == 1
    assert (await desk.cancel(end)).acted == 1
    assert (await desk.restore(end)).acted == 1
    assert await status(store, "a") is Status.PENDING


async def test_an_end_that_several_ids_have_is_refused_with_its_candidates(desk, store):
    await put(store, *(draft(one, id=one) for one in TWINS))
    with pytest.raises(AmbiguousId, match="ends in '1234abcd'; give more of it") as refused:
        await desk.cancel("1234abcd")
    assert all(f"{one} (order.created, pending)" in str(refused.value) for one in TWINS)
    assert (await desk.cancel("0001234abcd")).acted == 1
    assert (await desk.show(TWINS[1])).status is Status.PENDING


async def test_an_end_that_no_id_has_is_not_found(desk, store):
    await put(store, "a")
    for given in ("ffffffff", "fff", "no id at all", ""):
        with pytest.raises(LetterNotFound):
            await desk.show(given)


async def test_one_letter_named_twice_is_acted_on_once(desk, store):
    await dead(store, "a")
    assert (await desk.replay(letter_id("a"), short(letter_id("a")))).acted == 1
