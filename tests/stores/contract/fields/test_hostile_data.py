"""No content may block the failure path, and whatever came in comes back."""

from __future__ import annotations

import msgspec
import pytest
from tests.stores.samples import (
    act,
    claim,
    draft,
    failure,
    find_all,
    get,
    give_up,
    letter_id,
    names,
    put,
    retry,
    settle_all,
)

from redrive.core.letter import BYTES, Status
from redrive.core.query import parse

TEXTS = {
    "nul": "before\0after",
    "escapes": "\x1b[2J\x1b]0;title\x07",
    "quotes": "'; DROP TABLE letters; -- \" ` %s ? $1",
    "wildcards": "100% _ * ? [a-z]",
    "beyond the basic plane": "𓀀 🙂 e\u0301 \u202e",
    "long": "x" * 100_000,
    "empty": "",
    "newlines": "a\r\nb\u2028c",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_an_error_of_any_text_is_kept_grouped_found_and_replayed(store, text):
    await put(store, "a")
    await settle_all(store, retry(what=failure(text, fingerprint="h")))
    await settle_all(store, give_up(failure(text, template=text, fingerprint="h")))
    assert (await get(store, "a")).last_error == text
    [group] = await store.groups(parse("status:failed"))
    assert group.count == 1

    await act(store, "replay", "a", by=text[:100], reason=text[:100])
    [cycle] = (await get(store, "a")).failure_history
    assert (cycle.last_error, cycle.replayed_by) == (text, text[:100])
    assert names(await claim(store)) == ["a"]


@pytest.mark.parametrize(
    "text", [text for text in TEXTS.values() if text], ids=[name for name in TEXTS if name != "empty"]
)
async def test_names_of_any_text_are_told_apart(store, text):
    told = {"queue": text, "kind": text, "key": text, "idempotency_key": text, "tenant": text, "origin": text}
    await store.put([draft("a", **told), draft("b", **told), draft("c", **{**told, "kind": text + "!"})])
    letter = await get(store, "a")
    assert {name: getattr(letter, name) for name in told} == told
    assert await store.get(letter_id("b")) is None
    assert len(await find_all(store)) == 2


@pytest.mark.parametrize("payload", [b"\0", b"\xff\xfe", b'{"a": ' * 10_000, b"[" * 100_000, b'"\\ud800"', b"NaN"])
async def test_a_payload_that_nobody_can_read_does_not_disturb_a_query(store, payload):
    await put(store, draft("a", payload=payload, content_type=BYTES), draft("b", payload=b'{"order": 17}'))
    found = await find_all(store, "payload.order:17")
    assert [letter.id for letter in found] == [letter_id("b")]
    await settle_all(store, give_up())
    assert {letter.status for letter in await find_all(store, "-payload.order:18")} == {Status.FAILED}
    assert (await get(store, "a")).payload == payload


async def test_metadata_deeper_than_this_python_reads_stop_neither_their_letter_nor_its_neighbours(store):
    if not store.features.durable:
        pytest.skip("nobody else writes into the memory of this process")
    deep = msgspec.Raw(b"[" * 100_000 + b"]" * 100_000)  # as another Python, which reads deeper, may write it
    await put(store, draft("a", metadata={"deep": deep}), "b")
    assert len(await find_all(store)) == 2
    assert names(await claim(store)) == ["a", "b"]


@pytest.mark.parametrize("needle", ["TIMED", "out: 100%", "_", "%", "'", "é", "💥", "ab", "a"])
async def test_a_substring_is_found_whatever_its_case_and_length(store, needle):
    texts = {"a": "It timed out: 100%_ of 'é💥ab'", "b": "nothing of the kind"}
    for name, text in texts.items():
        await put(store, draft(name, failure=failure(text, fingerprint=name)))
    expected = {letter_id(name) for name, text in texts.items() if needle.lower() in text.lower()}
    quoted = needle.replace('"', '\\"')
    assert {letter.id for letter in await find_all(store, f'error:~"{quoted}"')} == expected
