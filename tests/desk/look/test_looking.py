from __future__ import annotations

import msgspec
import pytest

from redrive.desk.look import inspect, views
from redrive.errors import LetterNotFound, QueryError


async def test_show_returns_exactly_the_letter_that_was_asked_for(store, mill):
    await mill.pending()
    wanted = await mill.pending()

    assert (await inspect.show(store, wanted)).id == wanted


async def test_show_of_an_unknown_id_says_so(store):
    with pytest.raises(LetterNotFound, match="no letter has the id 'nope'"):
        await inspect.show(store, "nope")


async def test_pages_of_a_list_join_without_gap_or_repetition(store, mill):
    ids = [await mill.pending() for _ in range(7)]

    seen, cursor = [], None
    while True:
        page = await inspect.ls(store, "kind:order.*", cursor=cursor, limit=3)
        seen += [letter.id for letter in page.letters]
        cursor = page.cursor
        if cursor is None:
            break

    assert seen == ids[::-1]


async def test_a_list_keeps_to_its_query(store, mill):
    await mill.pending("mail.sent")
    failed = await mill.failed()

    page = await inspect.ls(store, "status:failed")

    assert [letter.id for letter in page.letters] == [failed]


async def test_a_query_that_makes_no_sense_is_refused(store):
    with pytest.raises(QueryError):
        await inspect.ls(store, "colour:red")


async def test_a_list_never_shows_a_payload(store, mill):
    await mill.pending(payload=b'{"secret":"s3cr3t"}')

    listing = views.listing(await inspect.ls(store))

    assert b"s3cr3t" not in msgspec.json.encode(listing)


async def test_json_times_are_iso_8601_in_utc(store, mill):
    letter_id = await mill.pending()

    shown = msgspec.json.decode(msgspec.json.encode(views.sheet(await inspect.show(store, letter_id))))

    assert shown["letter"]["created_at"] == "2026-01-01T00:00:00Z"


async def test_big_numbers_key_order_and_repeated_keys_survive_being_shown(store, mill):
    payload = b'{"z":123456789012345678901234567890,"a":1.10,"z":2}'
    letter_id = await mill.pending(payload=payload)

    assert payload in msgspec.json.encode(views.sheet(await inspect.show(store, letter_id)))


@pytest.mark.parametrize(
    "payload", [b"\x00\xff", b'"\\ud800"', b'{"a":', b"[" * 100_000 + b"]" * 100_000, b'"\xed\xa0\x80"', b"NaN"]
)
async def test_a_payload_that_is_no_json_is_shown_as_base64(store, mill, payload):
    letter_id = await mill.pending(payload=payload)

    sheet = views.sheet(await inspect.show(store, letter_id))

    assert sheet.payload_encoding == "base64"
    shown = msgspec.json.decode(msgspec.json.encode(sheet))
    assert msgspec.json.decode(msgspec.json.encode(shown["payload"]), type=bytes) == payload


async def test_headers_keep_order_repetition_and_bytes(store, mill):
    letter_id = await mill.pending(headers=(("a", b"1"), ("a", b"\xff"), ("b", b"")))

    headers = views.sheet(await inspect.show(store, letter_id)).headers

    assert [(one.name, one.value, one.encoding) for one in headers] == [
        ("a", "1", "utf-8"),
        ("a", "/w==", "base64"),
        ("b", "", "utf-8"),
    ]
