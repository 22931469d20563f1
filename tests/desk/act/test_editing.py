from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from redrive.core.letter import BYTES, JSON, Letter
from redrive.desk.act.acts import act
from redrive.desk.act.edit import Form, diff, edit, payload_from, sheet_for
from redrive.desk.look import inspect
from redrive.errors import EditConflict, LetterNotFound, MoveRefused, PayloadError
from redrive.stores.contract import Want


async def test_only_the_edited_copy_is_ever_sent(store, mill):
    letter_id = await mill.failed(payload=b'{"order":17}')

    await edit(store, letter_id, b'{"order":18}', version=1, by="ana", reason="wrong order")
    await act(store, "replay", [letter_id], by="ana")

    claims = await store.claim([Want("default", ("order.created",), 10)], lease=60, worker="w1")
    assert [(claim.letter.id, claim.letter.payload) for claim in claims] == [(letter_id, b'{"order":18}')]


async def test_a_second_edit_of_the_same_version_is_refused_with_a_reason(store, mill):
    letter_id = await mill.failed()
    await edit(store, letter_id, b'{"order":18}', version=1, by="ana")

    with pytest.raises(EditConflict, match=r"read at version 1 and is now at version 2.*read it again"):
        await edit(store, letter_id, b'{"order":19}', version=1, by="ben")

    assert (await inspect.show(store, letter_id)).payload == b'{"order":18}'


async def test_an_unchanged_payload_is_not_written(store, mill):
    letter_id = await mill.failed()

    with pytest.raises(MoveRefused, match="unchanged"):
        await edit(store, letter_id, b'{"order":17}', version=1, by="ana")

    assert (await inspect.show(store, letter_id)).payload_version == 1


@pytest.mark.parametrize("payload", [b"{", b'"\xff"', b"[" * 100_000 + b"]" * 100_000])
async def test_a_json_letter_stays_json(store, mill, payload):
    letter_id = await mill.failed()

    with pytest.raises(PayloadError, match="nothing was written"):
        await edit(store, letter_id, payload, version=1, by="ana")

    assert (await inspect.show(store, letter_id)).payload == b'{"order":17}'


async def test_a_delivered_letter_cannot_be_edited(store, mill):
    letter_id = await mill.delivered()

    with pytest.raises(MoveRefused):
        await edit(store, letter_id, b"1", version=1, by="ana")


async def test_an_unknown_letter_cannot_be_edited(store):
    with pytest.raises(LetterNotFound):
        await edit(store, "nope", b"1", version=1, by="ana")


async def test_an_edit_reports_its_diff_and_is_audited(store, mill):
    letter_id = await mill.failed()

    done = await edit(store, letter_id, b'{"order":18}', version=1, by="ana", reason="wrong order")

    assert done.payload_version == 2
    assert '-  "order": 17' in done.diff
    assert '+  "order": 18' in done.diff
    [entry, *_] = await store.audit()
    assert (entry.verb, entry.by, entry.reason, entry.target) == ("edit", "ana", "wrong order", letter_id)


@pytest.mark.parametrize(
    ("payload", "content_type", "form"),
    [
        (b'{"a":1}', JSON, Form.JSON),
        (b'{"a":', JSON, Form.HEX),
        (b"plain text\nof two lines", BYTES, Form.TEXT),
        (b"\x00\xff\x1b", BYTES, Form.HEX),
        (b"\r\n", BYTES, Form.HEX),
        (b"", BYTES, Form.TEXT),
    ],
)
def test_what_an_editor_is_shown_comes_back_byte_by_byte(payload, content_type, form):
    letter = Letter("1", "default", "k", payload, content_type=content_type)

    sheet = sheet_for(letter)

    assert sheet.form is form
    assert payload_from(letter, sheet) == payload


def test_a_newline_that_only_the_editor_added_is_not_part_of_the_payload():
    letter = Letter("1", "default", "k", b"text", content_type=BYTES)
    saved = msgspec.structs.replace(sheet_for(letter), text="text\n")

    assert payload_from(letter, saved) == b"text"


def test_json_that_only_changed_its_layout_counts_as_unchanged():
    letter = Letter("1", "default", "k", b'{ "a": [1, 2] }')
    saved = msgspec.structs.replace(sheet_for(letter), text='{"a":[1,2]}')

    assert payload_from(letter, saved) == letter.payload


def test_text_that_is_no_hex_is_refused():
    letter = Letter("1", "default", "k", b"\x00", content_type=BYTES)
    saved = msgspec.structs.replace(sheet_for(letter), text="zz")

    with pytest.raises(PayloadError, match="pairs of hex digits"):
        payload_from(letter, saved)


def test_a_very_long_diff_is_cut_and_says_so():
    before = Letter("1", "default", "k", msgspec.json.encode(list(range(5_000))))
    after = msgspec.structs.replace(before, payload=msgspec.json.encode(list(range(5_000, 10_000))))

    assert diff(before, after).endswith("more lines")


def test_a_diff_of_thousands_of_repeated_lines_sets_old_and_new_one_below_the_other():
    old, new = _letter([n % 97 for n in range(12_000)]), _letter([n % 89 for n in range(12_000)])

    lines = diff(old, new).splitlines()

    assert lines[2].endswith("too much to compare line by line")
    assert (lines[3], lines[-2]) == ("-  89,", "+  18,")
    assert lines[-1].startswith("+… ")


def test_one_change_in_a_long_payload_is_shown_with_its_place():
    numbers = [n % 97 for n in range(12_000)]
    changed = [*numbers[:6_000], "new", *numbers[6_001:]]

    assert diff(_letter(numbers), _letter(changed)).splitlines()[2:] == [
        "@@ -5999,7 +5999,7 @@", "   80,", "   81,", "   82,", "-  83,", '+  "new",', "   84,", "   85,", "   86,",
    ]  # fmt: skip


class Recording(ThreadPoolExecutor):
    """Threads that count what they were given."""

    given = 0

    def submit(self, *work, **named):
        self.given += 1
        return super().submit(*work, **named)


async def test_payloads_are_compared_beside_the_event_loop(store, mill):
    letter_id = await mill.failed(payload=b'{"order":17}')
    threads = Recording(1)
    asyncio.get_running_loop().set_default_executor(threads)  # which the loop shuts down with itself
    await edit(store, letter_id, b'{"order":18}', version=1, by="ana")
    assert threads.given == 1


def _letter(payload):
    return Letter(id="a", queue="default", kind="order.created", payload=msgspec.json.encode(payload))
