"""What a sender gives is gone through once and checked at the door, with the same words on every store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from uuid import uuid4

import msgspec
import pytest

from redrive import Draft, Redrive, RetryPolicy
from redrive.core.letter import instant
from redrive.desk.look import views
from redrive.errors import DraftError, PayloadError, PolicyError
from redrive.stores.columns import read_extras

NAN, INF = float("nan"), float("inf")
ID = "01890000-0000-7000-8000-000000000001"


class Kind(StrEnum):
    ORDER = "order"


@pytest.fixture
def app() -> Redrive:
    made = Redrive("memory://")
    made.add_handler("order", lambda order: None)
    return made


# ---------------------------------------------------------------------- gone through once


@pytest.mark.parametrize("form", [list, tuple, iter, lambda drafts: (each for each in drafts), lambda d: map(same, d)])
async def test_enqueue_many_keeps_every_draft_of_any_iterable(app, driven, form):
    async with driven(app) as test:
        receipts = await app.enqueue_many(form([app.draft("order", {"n": n}) for n in range(10)]))
        assert len(receipts) == len(await test.letters()) == 10


def same(draft: Draft) -> Draft:
    return draft


async def test_headers_and_ids_of_an_iterator_are_kept(app, driven):
    async with driven(app) as test:
        first = await app.enqueue("order", {})
        receipt = await app.enqueue(
            "order", {}, headers=zip(["a", "a"], [b"1", b"2"], strict=True), after=iter([first.id])
        )
        letter = await test.letter(receipt.id)
    assert letter.headers == (("a", b"1"), ("a", b"2"))
    assert letter.after == (first.id,)


async def test_texts_of_other_classes_and_uuids_are_taken_as_what_they_are(app, driven):
    own = uuid4()
    async with driven(app) as test:
        receipt = await app.enqueue(Kind.ORDER, {}, key=Kind.ORDER, id=own, delay=True + 1)
        letter = await test.letter(receipt.id)
    assert (letter.id, letter.kind, letter.key, type(letter.key)) == (str(own), "order", "order", str)


@pytest.mark.parametrize("given", [5, None, "abc", {"a": 1}, [1], [{"kind": "order"}], Draft(ID, "q", "order", b"")])
async def test_enqueue_many_says_what_it_takes(app, given):
    with pytest.raises(DraftError, match=r"app\.draft"):
        await app.enqueue_many(given)


@pytest.mark.parametrize("accepted", [1.5, "now", 10**18, True])
def test_a_draft_was_accepted_at_a_time_in_microseconds_or_not_at_all(accepted):
    with pytest.raises(DraftError, match="accepted_us is no time"):
        Draft(ID, "q", "order", b"", accepted_us=accepted)


async def test_no_sender_says_when_a_letter_was_accepted(app):
    with pytest.raises(TypeError, match="accepted_us"):
        app.draft("order", {}, accepted_us=1)


# ---------------------------------------------------------------------- wrong types

WRONG = [
    ({"key": 12}, "key is 12 and must be text, such as '12', or None"),
    ({"key": b"12"}, "key is bytes and must be text"),
    ({"idempotency_key": 12}, "idempotency_key is 12 and must be text"),
    ({"tenant": ["a"]}, "tenant is a list and must be text"),
    ({"origin": 1}, "origin is 1 and must be text"),
    ({"queue": 7}, "queue is 7 and must be text"),
    ({"generation": "7"}, "generation is '7' and must be a whole number"),
    ({"generation": 1.5}, "generation is 1.5 and must be a whole number"),
    ({"delay": NAN}, "delay is nan and must be a number of seconds"),
    ({"delay": INF}, "delay is inf and must be a number of seconds"),
    ({"delay": "5"}, "delay is '5' and must be a number of seconds"),
    ({"delay": None}, "delay is None and must be a number of seconds"),
    ({"delay": timedelta(5)}, "delay is a timedelta and must be a number of seconds"),
    ({"delay": 1_790_000_000_000}, "must be a number of seconds from 0 to 250000000000; is it in milliseconds"),
    ({"delay": 10**400}, "must be a number of seconds"),
    ({"due_at": date(2026, 1, 1)}, "cannot make a letter: due_at is a date and must be an aware datetime"),
    ({"due_at": 1_790_000_000}, "due_at is 1790000000 and must be an aware datetime"),
    ({"due_at": "2026-01-01"}, "due_at is '2026-01-01' and must be an aware datetime"),
    ({"due_at": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - the mistake itself
    ({"due_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))}, "after the year 9999"),
    ({"priority": 1}, "1 is not a priority; use high, medium or low"),
    ({"priority": None}, "None is not a priority"),
    ({"priority": "urgent"}, "'urgent' is not a priority"),
    ({"after": ID}, f"after is {ID!r} and must be a list of ids"),
    ({"after": [7]}, "kind 'order': after holds a value of type int, which is no id"),
    ({"after": None}, "after is None and must be a list of ids"),
    ({"after": {"id": ID}}, "after is a dict and must be a list of ids"),
    ({"headers": {}}, "kind 'order': headers is a dict; give [(name, value), …]"),
    ({"headers": {"a": b"1"}}, "headers is a dict; give [(name, value), …]"),
    ({"headers": "ab"}, "headers is a str; give"),
    ({"headers": 5}, "headers is an int; give"),
    ({"headers": ["ab"]}, "a header is no pair of str and bytes"),
    ({"headers": [("a", "b")]}, "the header 'a' is no pair of str and bytes"),
    ({"headers": [("a", b"b", b"c")]}, "the header 'a' is no pair of str and bytes"),
    ({"metadata": "x"}, "kind 'order': metadata is a str and must be a dict"),
    ({"metadata": [("a", 1)]}, "metadata is a list and must be a dict"),
    ({"id": 5}, "it must be a UUID"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "words"), WRONG, ids=lambda value: str(value)[:40])
async def test_an_argument_of_the_wrong_type_is_refused_in_the_same_words_on_every_store(app, driven, options, words):
    async with driven(app) as test:
        with pytest.raises(DraftError) as refused:
            await app.enqueue("order", {}, **options)
        assert await test.letters() == []
    assert words in str(refused.value)


@pytest.mark.parametrize("kind", [None, "", 5, [], b"order"])
async def test_a_kind_that_is_no_text_is_refused(app, driven, kind):
    async with driven(app) as test:
        with pytest.raises(DraftError, match=r"kind is .* and must be text"):
            await app.enqueue(kind, {})
        assert await test.letters() == []


@pytest.mark.parametrize("policy", [5, object(), ["never"], True])
async def test_a_policy_that_is_none_is_refused(app, driven, policy):
    async with driven(app):
        with pytest.raises(PolicyError, match="give a RetryPolicy"):
            await app.enqueue("order", {}, policy=policy)


def test_a_draft_made_by_hand_is_checked_too():
    with pytest.raises(DraftError, match="key is 12"):
        Draft(id=ID, queue="default", kind="order", payload=b"", key=12)
    with pytest.raises(DraftError, match="its payload is str"):
        Draft(id=ID, queue="default", kind="order", payload="{}")
    with pytest.raises(DraftError, match="headers must be a tuple of pairs"):
        Draft(id=ID, queue="default", kind="order", payload=b"", headers=[("a", b"1")])


def test_all_that_is_wrong_is_said_at_once(app):
    with pytest.raises(
        DraftError, match=r"cannot make a letter of kind 'order': key is 1 .*; tenant is 2 .*; delay is nan"
    ):
        app.draft("order", {}, key=1, tenant=2, delay=NAN)


def test_the_sync_application_has_the_same_door():
    app = Redrive("memory://")
    with pytest.raises(DraftError, match="key is 12"):
        app.sync.enqueue("order", {}, key=12)
    assert len(app.sync.enqueue_many(app.draft("order", {}) for _ in range(3))) == 3


def test_a_negative_delay_is_none_as_ever(app):
    assert app.draft("order", {}, delay=-5).delay == 0


# ---------------------------------------------------------------------- depth


def nested(levels: int):
    value: object = 1
    for _ in range(levels - 1):
        value = {"a": value} if levels % 2 else [value]
    return {"top": value}


@pytest.mark.parametrize("levels", [1, 99, 100])
async def test_metadata_of_a_hundred_levels_is_kept(app, driven, levels):
    async with driven(app) as test:
        receipt = await app.enqueue("order", {}, metadata=nested(levels))
        assert (await test.letter(receipt.id)).metadata == nested(levels)


@pytest.mark.parametrize("levels", [101, 1_500, 100_000])
async def test_metadata_that_another_python_could_not_read_is_refused(app, driven, levels):
    async with driven(app) as test:
        with pytest.raises(DraftError, match=r"nested (in more than 100 levels|too deeply)"):
            await app.enqueue("order", {}, metadata=nested(levels))
        assert await test.letters() == []


def test_metadata_that_holds_itself_is_refused(app):
    circle: dict = {}
    circle["a"] = circle
    with pytest.raises(DraftError, match="holds itself"):
        app.draft("order", {}, metadata=circle)


def test_a_column_nested_deeper_than_we_can_read_is_empty_and_stops_nobody():
    assert read_extras(b'{"metadata":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}").metadata == {}


def test_metadata_is_what_it_was_when_the_draft_was_made(app):
    given = {"tags": ["a"], "at": datetime(2026, 1, 1, tzinfo=UTC)}
    draft = app.draft("order", {}, metadata=given)
    given["tags"].append("b")
    assert draft.metadata == {"tags": ["a"], "at": "2026-01-01T00:00:00Z"}


# ---------------------------------------------------------------------- what cannot be written


@dataclass
class Line:
    price: object


class Box(msgspec.Struct):
    lines: list


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"order": {"lines": [1, {"a": object()}]}}, r"TypeError at \$\.order\.lines\[1\]\.a: a value of type object"),
        (Line(complex(1, 2)), r"TypeError at \$\.price: a value of type complex"),
        (Box([Line(len)]), r"TypeError at \$\.lines\[0\]\.price: a value of type builtin_function_or_method"),
        ({"a": {(1, 2): 3}}, r"TypeError at \$\.a: a dict with keys of type tuple"),
        ({"a": {1, object()}}, r"TypeError at \$\.a\{…\}: a value of type object"),
        ({"a": "secret\ud800"}, r"UnicodeEncodeError at \$\.a: text with a lone surrogate"),
        (nested(100_000), "it is nested too deeply"),
    ],
)  # fmt: skip
def test_a_payload_that_cannot_be_written_names_the_type_and_the_place_and_no_value(app, payload, words):
    with pytest.raises(PayloadError, match=words) as refused:
        app.draft("order", payload)
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_what_json_has_a_form_for_is_written(app):
    draft = app.draft("order", {"price": Decimal("1.50"), "ids": {uuid4()}, "on": date(2026, 1, 1), 1: None})
    assert msgspec.json.decode(draft.payload)["price"] == "1.50"


# ---------------------------------------------------------------------- what is kept already


async def test_a_letter_kept_with_a_due_time_beyond_all_dates_is_shown(app, driven):
    async with driven(app) as test:
        receipt = await app.enqueue("order", {}, policy=RetryPolicy.NEVER)
        letter = msgspec.structs.replace(await test.letter(receipt.id), due_us=1_790_000_000_000_000_000)
    assert letter.due_at == datetime.max.replace(tzinfo=UTC)
    msgspec.json.encode(views.sheet(letter))
    assert instant(-(2**63)) == datetime.min.replace(tzinfo=UTC)
