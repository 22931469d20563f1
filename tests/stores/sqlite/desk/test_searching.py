"""Searching error texts finds what is there, however long the text, and nothing that is over."""

from __future__ import annotations

from tests.stores.samples import OPERATOR, claim, failure, give_up, letter_id, names, put

from redrive.core.query import parse


async def _dead(store, name, message):
    await put(store, name)
    [taken] = await claim(store)
    await store.settle([(taken, give_up(failure(message)))])


async def _search(store, text):
    return names((await store.find(parse(text))).letters)


async def test_a_part_of_an_error_is_found_whatever_its_case(sqlite):
    await _dead(sqlite, "a", "Connection TIMED OUT after 3 s")
    await _dead(sqlite, "b", "no such order")
    assert await _search(sqlite, "status:failed error:~'timed out'".replace("'", '"')) == ["a"]
    assert await _search(sqlite, "status:failed error:~zzz") == []
    assert await _search(sqlite, "status:failed error:~ti") == ["a"]  # shorter than the index can help with


async def test_what_stands_at_the_end_of_a_long_text_is_found_once(sqlite):
    await _dead(sqlite, "a", "needle " + "x" * 2_000 + " needle")
    await _dead(sqlite, "b", "x" * 2_000 + " needle")
    await _dead(sqlite, "c", "needle")
    await _dead(sqlite, "d", "hay")
    assert await _search(sqlite, "status:failed error:~needle") == ["c", "b", "a"]


async def test_pages_of_a_search_join_without_gap_or_repeat(sqlite):
    for name in "abcdefg":
        await _dead(sqlite, name, "needle" if name in "bdf" else "needle " + "x" * 600)
    query, seen, cursor = parse("status:failed error:~needle"), [], None
    while True:
        page = await sqlite.find(query, cursor=cursor, limit=2)
        seen += names(page.letters)
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == list("gfedcba")


async def test_a_replayed_letter_is_found_by_its_new_error_only(sqlite):
    await _dead(sqlite, "a", "the old error")
    await sqlite.act("replay", [letter_id("a")], **OPERATOR)
    assert await _search(sqlite, "status:failed error:~error") == []
    [taken] = await claim(sqlite)
    await sqlite.settle([(taken, give_up(failure("the new error")))])
    assert await _search(sqlite, "status:failed error:~new") == ["a"]
    assert await _search(sqlite, "status:failed error:~old") == []


async def test_the_search_language_cannot_be_reached_from_a_query(sqlite):
    await _dead(sqlite, "a", 'say "no" OR maybe*')
    assert await _search(sqlite, 'status:failed error:~"\\"no\\" OR maybe*"') == ["a"]
    assert await _search(sqlite, 'status:failed error:~"say OR maybe"') == []
