from __future__ import annotations

from tests.stores.samples import DELIVERED, act, dead, draft, failure, give_up, put, retry, settle_all

from redrive.core.letter import Category
from redrive.core.query import parse
from redrive.stores.contract import books, total

TIMEOUT = failure("timed out after 3 s", error_type="TimeoutError", fingerprint="t", template="timed out after <n> s")
BUG = failure("no 'id'", error_type="KeyError", category=Category.PERMANENT, fingerprint="b", template="no <text>")


async def groups(store, text: str = "", **options) -> list[tuple[str, int]]:
    return [(group.fingerprint, group.count) for group in await store.groups(parse(text), **options)]


async def test_failures_with_one_fingerprint_are_one_group(store, clock):
    first = clock.wall_us()
    await dead(store, "a", what=TIMEOUT)
    clock.advance(60)
    await put(
        store,
        draft("b", kind="invoice", failure=failure("timed out after 9 s", category=Category.NETWORK, fingerprint="t")),
    )
    clock.advance(60)
    await dead(store, "c", what=TIMEOUT)
    [group] = await store.groups(parse(""))

    assert (group.fingerprint, group.error_type, group.count) == ("t", "TimeoutError", 3)
    assert group.title == "timed out after <n> s"
    assert sorted(group.kinds) == ["invoice", "order.created"]
    assert sorted(group.categories) == ["network", "transient"]
    assert (group.first_seen_us, group.last_seen_us) == (first, clock.wall_us())


async def test_the_biggest_group_comes_first_and_the_limit_holds(store):
    await dead(store, "a", what=TIMEOUT)
    await dead(store, "b", "c", "d", what=BUG)
    await dead(store, "e", "f", what=failure(fingerprint="m"))
    assert await groups(store) == [("b", 3), ("m", 2), ("t", 1)]
    assert await groups(store, limit=2) == [("b", 3), ("m", 2)]


async def test_only_failed_letters_are_grouped(store):
    await put(store, "retrying")
    await settle_all(store, retry(60, what=TIMEOUT))
    await dead(store, "a", "b", "c", what=BUG)
    await act(store, "replay", "a")
    await act(store, "archive", "b")
    assert await groups(store) == [("b", 1)]
    await act(store, "restore", "b")
    assert await groups(store) == [("b", 2)]
    await settle_all(store, DELIVERED)
    assert await groups(store) == [("b", 2)]


async def test_a_group_counts_only_what_the_query_finds(store):
    await dead(store, "a", "b", what=TIMEOUT)
    await put(store, draft("c", kind="invoice", failure=TIMEOUT), draft("d", kind="invoice", failure=BUG))
    assert await groups(store, "kind:invoice") == [("b", 1), ("t", 1)]
    assert await groups(store, "group:t") == [("t", 3)]
    assert await groups(store, "status:failed error:~timed") == [("t", 3)]
    assert await groups(store, "status:delivered") == []


async def test_a_replay_that_fails_otherwise_changes_its_group(store):
    await dead(store, "a", what=TIMEOUT)
    await act(store, "replay", "a")
    assert await groups(store) == []
    await settle_all(store, give_up(BUG))
    assert await groups(store) == [("b", 1)]


async def test_tallies_tell_dead_letters_apart_by_their_error(store):
    await dead(store, "a", "b", what=TIMEOUT)
    await dead(store, "c", what=BUG)
    await put(store, "d", draft("e", queue="other", kind="invoice", failure=BUG))
    tallies = await store.tallies()

    assert total(tallies, status="failed") == 4
    assert total(tallies, status="failed", queue="work", error_type="TimeoutError") == 2
    assert total(tallies, status="failed", category="permanent") == 2
    assert total(tallies, status="failed", fingerprint="b", kind="invoice") == 1
    assert total(tallies, status="failed", policy="exponential") == 3
    assert total(tallies, status="pending") == 1
    assert total(tallies, status="enqueued", queue="work") == 4


async def test_the_books_tell_every_letters_fate(store):
    await put(store, *"abcdefg")
    await act(store, "cancel", "a", "b")
    await act(store, "purge", "a")
    await settle_all(store, DELIVERED)
    await dead(store, "h", "i")
    await act(store, "archive", "h")
    await put(store, "j")
    assert books(await store.tallies()) == {
        "enqueued": 10, "pending": 1, "in_flight": 0, "delivered": 5, "failed": 1, "archived": 2, "purged": 1
    }  # fmt: skip
