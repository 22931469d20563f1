"""A store that promises less: what it does not promise is refused clearly, or left out of the suite by name."""

from __future__ import annotations

import pytest
from tests.stores.samples import after, draft, failure, needs, put

from redrive.desk.act import copy, subscriptions
from redrive.errors import CopyRefused, NotSupported
from redrive.stores.contract import Features, QueueSpec, Subscription, as_broadcaster, as_migrated
from redrive.stores.copying import as_copyable
from redrive.stores.memory import MemoryStore
from redrive.wiring import open_outboxes


class Modest(MemoryStore):
    """Keeps letters, and nothing more."""

    features = Features(
        durable=False, shared=False, ordered=False, waits=False, limits=False, retries=False, copies=False
    )


@pytest.fixture
async def modest():
    store = Modest()
    await store.open()
    yield store
    await store.close()


async def test_letters_that_wait_and_letters_to_be_retried_are_refused_and_none_of_their_batch_is_kept(modest):
    await put(modest, "a")
    for refused, why in ((after("c", "a"), "waits for others"), (draft("c", failure=failure(), retry=True), "retry")):
        with pytest.raises(NotSupported, match=why):
            await modest.put([draft("b"), refused])
    assert len(await modest.tallies("pending")) == 1
    assert await modest.get(draft("b").id) is None


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"ordered": True}, "order per key"), ({"rate": 1.0}, "no rate"), ({"max_in_flight": 1}, "no max_in_flight")],
)
async def test_settings_of_queues_that_would_not_hold_are_refused(modest, settings, why):
    with pytest.raises(NotSupported, match=why):
        await modest.declare([QueueSpec(name="lane", **settings)])
    assert await modest.queues() == []


async def test_a_plain_queue_and_a_plain_letter_are_taken(modest):
    await modest.declare([QueueSpec(name="work", max_size=5)])
    await put(modest, "a", draft("b", failure=failure()))


async def test_events_copies_schemas_and_outboxes_are_asked_for_by_feature(modest):
    assert as_broadcaster(modest) is as_migrated(modest) is as_copyable(modest) is None
    with pytest.raises(NotSupported, match="cannot subscribe to events in Modest"):
        await subscriptions.subscribe(modest, Subscription(event="e", handler="h"), by="ada")
    with pytest.raises(NotSupported, match="cannot use a connection of your own with Modest"):
        open_outboxes(modest, draft)
    with pytest.raises(CopyRefused, match="cannot give letters to others"):
        await copy.copy(modest, MemoryStore(), by="ada", names=("a", "b"))


async def test_the_suite_leaves_out_by_name_what_a_store_does_not_promise(modest):
    needs(modest, "atomic_batches")
    with pytest.raises(pytest.skip.Exception, match="Modest does not promise waits"):
        needs(modest, "waits")
