"""One event is one letter, however often it arrives, as whatever type, and through however many processes."""

from __future__ import annotations

import asyncio

import pytest
from tests.sources.webhook.asgi import post
from tests.stores.spool.shutter import Shuttered

from redrive import Redrive
from redrive.core.query import parse
from redrive.sources.webhook import Inbox, Source
from redrive.sources.webhook.config import QUEUE
from redrive.sources.webhook.events.identity import key_of, letter_id
from redrive.stores.spool import SpoolStore


async def take(payload: bytes) -> None:
    """Take anything."""


def delivery(event_id, event=b"push"):
    return [(b"x-github-event", event), (b"x-github-delivery", event_id)]


async def count(app):
    await app.open()
    return await app.store.count(parse("origin:webhook:*"))


@pytest.fixture
def inbox(app):
    app.add_handler("github", take)
    app.add_handler("github.issues", take)
    return Inbox(app, [Source.github(insecure=True)])


async def test_a_duplicate_is_200_with_the_same_id(app, inbox):
    first = await post(inbox, "/github", b"{}", delivery(b"1"))
    again = await post(inbox, "/github", b"{}", delivery(b"1"))
    assert (first.status, again.status) == (202, 200)
    assert again.json == {"id": first.json["id"], "duplicate": True}
    assert inbox.counts.results["github", "duplicate"] == 1
    assert await count(app) == 1


async def test_the_same_id_with_another_type_is_the_same_event(app, inbox):
    first = await post(inbox, "/github", b"{}", delivery(b"1", b"push"))
    again = await post(inbox, "/github", b"{}", delivery(b"1", b"issues"))  # another kind, another handler
    assert (again.status, again.json["id"]) == (200, first.json["id"])
    assert await count(app) == 1


async def test_an_event_that_the_queue_has_under_another_letters_id_is_a_duplicate_whatever_its_type(app, inbox):
    kept = await app.enqueue("github", b"{}", idempotency_key="github:1", unique_in="queue", queue=QUEUE)
    assert kept.id != letter_id("github:1")
    again = await post(inbox, "/github", b"{}", delivery(b"1", b"issues"))
    assert (again.status, again.json["id"]) == (200, kept.id)


async def test_the_same_id_of_types_in_two_queues_is_the_same_event(app):
    app.add_handler("github", take, queue="one")
    app.add_handler("github.issues", take, queue="two")
    inbox = Inbox(app, [Source.github(insecure=True)])
    first = await post(inbox, "/github", b"{}", delivery(b"1", b"push"))
    again = await post(inbox, "/github", b"{}", delivery(b"1", b"issues"))
    assert (again.status, again.json["id"]) == (200, first.json["id"])


async def test_the_same_id_with_another_body_is_a_conflict_and_the_first_body_stays(app, inbox):
    first = await post(inbox, "/github", b"first", delivery(b"1"))
    again = await post(inbox, "/github", b"other", delivery(b"1"))
    assert (again.status, again.json["id"]) == (200, first.json["id"])
    assert inbox.counts.results["github", "conflict"] == 1
    assert (await app.store.get(first.json["id"])).payload == b"first"


async def test_the_same_id_of_two_sources_is_two_events(app):
    inbox = Inbox(app, [Source.github(insecure=True), Source.github("other", insecure=True)], workers="elsewhere")
    for path in ("/github", "/other"):
        assert (await post(inbox, path, b"{}", delivery(b"1"))).status == 202
    assert await count(app) == 2


async def test_a_hundred_that_race_through_two_processes_are_one_letter(tmp_path):
    apps = [Redrive(f"sqlite:///{tmp_path}/race.db") for _ in range(2)]
    inboxes = [Inbox(app, [Source.github(insecure=True)], workers="elsewhere") for app in apps]
    answers = await asyncio.gather(
        *(post(inboxes[n % 2], "/github", b"{}", delivery(b"1", b"push" if n % 3 else b"issues")) for n in range(100))
    )
    assert sorted(answer.status for answer in answers) == [200] * 99 + [202]
    assert len({answer.json["id"] for answer in answers}) == 1
    assert await count(apps[0]) == 1
    for app in apps:
        await app.close()


async def test_without_an_id_the_same_bytes_within_ten_minutes_are_one_event(app):
    now = [599.0]  # a second before a window of the clock ends
    inbox = Inbox(app, [Source.github(insecure=True)], workers="elsewhere", now=lambda: now[0])
    assert (await post(inbox, "/github", b"a")).status == 202
    for at, status in ((600.0, 200), (1_198.9, 200), (1_199.1, 202), (1_200.0, 200), (3_000.0, 202)):
        now[0] = at
        assert (await post(inbox, "/github", b"a")).status == status, at
    assert (await post(inbox, "/github", b"b")).status == 202


async def test_dedupe_by_id_keeps_each_event_without_one(app):
    inbox = Inbox(app, [Source.github(insecure=True, dedupe="id")], workers="elsewhere")
    for _ in range(2):
        assert (await post(inbox, "/github", b"a")).status == 202
    assert await count(app) == 2


async def test_an_event_that_was_delivered_is_still_a_duplicate(app, inbox):
    await post(inbox, "/github", b"{}", delivery(b"1"))
    await app.run(until_idle=True, signals=False)
    assert (await post(inbox, "/github", b"{}", delivery(b"1"))).status == 200


def test_a_letters_id_is_a_uuid_of_version_8_that_follows_from_the_key():
    found = letter_id(key_of("stripe", "evt_1"))
    assert found == letter_id("stripe:evt_1")
    assert (found[14], found[19] in "89ab") == ("8", True)
    assert key_of("a", "x" * 201).startswith("a:sha256:")


@pytest.mark.parametrize("headers", [delivery(b"1"), []])
async def test_while_the_store_is_away_a_spool_makes_it_202(tmp_path, headers):
    behind = Shuttered(tmp_path / "store.db")
    app = Redrive(store=SpoolStore(behind, str(tmp_path / "spool.db"), limit=10))
    inbox = Inbox(app, [Source.github(insecure=True)], workers="elsewhere")
    await app.open()
    behind.shutter.touch()
    assert (await post(inbox, "/github", b"{}", headers)).status == 202
    assert (await app.store.spooled()).waiting == 1
    await app.close()
