from __future__ import annotations

from tests.stores.samples import DELIVERED, act, dead, draft, failure, give_up, put, retry, settle_all

from redrive.core.letter import Category
from redrive.core.query import parse
from redrive.stores.contract import Histories, Retention, books, total

DAY = 86_400.0
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


async def many_distinct_and_purged(store, count: int = 30) -> None:
    drafts = [draft(f"d{n}", failure=failure(f"no {n}", fingerprint=f"g{n}")) for n in range(count)]
    await put(store, *drafts)
    for verb in ("archive", "purge"):
        await act(store, verb, *(f"d{n}" for n in range(count)))


async def test_a_group_whose_letters_are_gone_is_forgotten_after_a_day(store, clock):
    await many_distinct_and_purged(store)
    clock.advance(DAY - 1)
    await store.retain(Retention())
    await dead(store, "soon", what=failure(fingerprint="g1"))
    clock.advance(1)
    await store.retain(Retention())
    await dead(store, "late", what=failure(fingerprint="g2"))
    found = {group.fingerprint: group.first_seen_us for group in await store.groups(parse(""))}

    assert found == {"g1": clock.wall_us() - round(DAY * 1e6), "g2": clock.wall_us()}


async def test_a_group_with_an_archived_letter_is_kept(store, clock):
    first = clock.wall_us()
    await dead(store, "a", what=TIMEOUT)
    await act(store, "archive", "a")
    clock.advance(2 * DAY)
    await store.retain(Retention())
    await act(store, "restore", "a")
    [group] = await store.groups(parse(""))

    assert (group.title, group.first_seen_us) == ("timed out after <n> s", first)


async def test_groups_are_looked_at_a_page_at_a_time_and_each_has_its_turn(store, clock):
    await dead(store, "a", what=failure(fingerprint="g0"))
    await many_distinct_and_purged(store)
    clock.advance(DAY)
    for _ in range(20):
        await store.retain(Retention(), limit=2)
    await dead(store, "z", what=failure(fingerprint="g29"))

    assert {group.first_seen_us for group in await store.groups(parse("group:g29"))} == {clock.wall_us()}


async def test_the_tallies_of_one_status_are_found_alone(store):
    await dead(store, "a", what=BUG)
    await put(store, "b", "c")
    found = await store.tallies("pending")

    assert [(tally.status, tally.count) for tally in found] == [("pending", 2)]


async def test_histories_that_grow_are_counted(store):
    assert await store.histories() == Histories()
    await dead(store, "often", "once", "never")
    for _ in range(6):
        await act(store, "replay", "often")
        await settle_all(store, give_up())
    await act(store, "replay", "once")
    assert await store.histories() == Histories(largest=6, long=1)
    await act(store, "archive", "often")
    await act(store, "purge", "often")
    assert await store.histories() == Histories(largest=1, long=0)
