"""What a handler is called with. No future import here: handlers' annotations are read at run time."""

import dataclasses
from uuid import UUID

import msgspec
import pydantic
import pytest

from redrive import Letter, RetryPolicy, Status
from redrive.errors import DraftError, HandlerError, PayloadError


@dataclasses.dataclass
class OrderData:
    order: int


@dataclasses.dataclass
class OrderPrice:
    price: float


class OrderStruct(msgspec.Struct):
    order: int


class OrderModel(pydantic.BaseModel):
    order: int


@pytest.mark.parametrize(
    ("annotation", "sent", "received"),
    [
        (dict, {"order": 17}, {"order": 17}),
        (dict[str, int], {"order": 17}, {"order": 17}),
        (list[int], [1, 2], [1, 2]),
        (str, "seventeen", "seventeen"),
        (int, 17, 17),
        (bytes, b"\x00\xff\x00", b"\x00\xff\x00"),
        (OrderData, OrderData(17), OrderData(17)),
        (OrderStruct, OrderStruct(17), OrderStruct(17)),
        (OrderModel, OrderModel(order=17), OrderModel(order=17)),
        (OrderModel, {"order": 17}, OrderModel(order=17)),
        (OrderData, OrderModel(order=17), OrderData(17)),
    ],
)
async def test_a_handler_gets_the_payload_as_it_annotates_it(app, in_memory, annotation, sent, received):
    got = []

    async def ship(order):
        got.append(order)

    ship.__annotations__["order"] = annotation
    app.add_handler("order.created", ship)
    async with in_memory(app) as test:
        await app.enqueue("order.created", sent)
        await test.run_until_idle()
    assert got == [received]
    assert type(got[0]) is type(received)


async def test_a_handler_that_asks_for_bytes_gets_the_very_bytes(app, driven):
    got = []

    @app.handler("order.created")
    async def ship(order: bytes):
        got.append(order)

    async with driven(app) as test:
        await app.enqueue("order.created", {"order": 17})
        await test.run_until_idle()
    assert got == [b'{"order":17}']


async def test_a_handler_may_ask_for_the_letter_beside_the_payload(app, driven):
    got = []

    @app.handler("order.created")
    async def ship(order: dict, letter: Letter):
        got.append((order, letter))

    async with driven(app) as test:
        receipt = await app.enqueue(
            "order.created", {"order": 17}, key="c9", metadata={"by": "ana"}, headers=[("a", b"1"), ("a", b"\xff")]
        )
        await test.run_until_idle()
    [(order, letter)] = got
    assert order == {"order": 17}
    assert (letter.id, letter.key, letter.attempts, letter.status) == (receipt.id, "c9", 1, Status.IN_FLIGHT)
    assert letter.metadata == {"by": "ana"}
    assert letter.headers == (("a", b"1"), ("a", b"\xff"))


async def test_a_handler_may_ask_for_the_letter_alone(app, driven):
    got = []

    @app.handler("order.created")
    def ship(letter: Letter):
        got.append(letter.payload)

    async with driven(app) as test:
        await app.enqueue("order.created", {"order": 17})
        await test.run_until_idle()
    assert got == [b'{"order":17}']


@pytest.mark.parametrize("annotation", [dict, OrderData, OrderStruct, OrderModel, list[int]])
@pytest.mark.parametrize("garbage", [b"not json", b'{"order": "x"', b"\xff\xfe", b"[" * 100_000, b""])
async def test_a_payload_that_does_not_decode_is_a_validation_failure_and_not_a_crash(
    app, in_memory, annotation, garbage
):
    async def ship(order):
        raise AssertionError("it must not be called")

    ship.__annotations__["order"] = annotation
    app.add_handler("order.created", ship)
    async with in_memory(app) as test:
        await app.enqueue("order.created", garbage)
        await app.enqueue("order.created", garbage)
        await test.run_until_idle()
        for letter in await test.letters("status:failed"):
            assert (letter.category, letter.attempts) == ("validation", 1)
            assert "AssertionError" not in (letter.error_type or "")
        assert len(await test.letters("status:failed")) == 2


async def test_a_payload_of_the_wrong_shape_is_a_validation_failure_that_shows_no_payload(app, driven):
    @app.handler("order.created")
    async def ship(order: OrderModel):
        raise AssertionError("it must not be called")

    async with driven(app) as test:
        receipt = await app.enqueue("order.created", {"order": "hunter2"})
        await test.run_until_idle()
        letter = await test.letter(receipt.id)
    assert (letter.status, letter.category, letter.attempts) == (Status.FAILED, "validation", 1)
    assert "hunter2" not in letter.last_error


async def test_a_value_error_of_the_handlers_own_code_is_transient(app, driven):
    @app.handler("order.created", policy=RetryPolicy.immediate(max_attempts=2))
    async def ship(order: dict):
        int("x")

    async with driven(app) as test:
        receipt = await app.enqueue("order.created", {})
        await test.run_until_idle()
        letter = await test.letter(receipt.id)
    assert (letter.status, letter.category, letter.attempts, letter.why) == (
        Status.FAILED, "transient", 2, "exhausted"
    )  # fmt: skip


@pytest.mark.parametrize("payload", [{1, 2, object()}, object(), {"f": len}, "\ud800"])
async def test_what_cannot_be_written_is_refused_at_enqueue_and_not_shown(app, driven, payload):
    app.add_handler("order.created", lambda order: None)
    async with driven(app) as test:
        with pytest.raises(PayloadError, match=r"order\.created"):
            await app.enqueue("order.created", payload)
        assert await test.letters() == []


@pytest.mark.parametrize("payload", [b"", b"\x00" * 10, bytes(range(256)), b"\xed\xa0\x80", b"x" * 1_000_000])
async def test_bytes_come_back_identical(app, driven, payload):
    got = []

    @app.handler("blob")
    async def keep(blob: bytes):
        got.append(blob)

    async with driven(app) as test:
        receipt = await app.enqueue("blob", payload)
        await test.run_until_idle()
        assert (await test.letter(receipt.id)).payload == payload
    assert got == [payload]


async def test_the_id_is_a_uuid_of_version_7(app, driven):
    app.add_handler("order.created", lambda order: None)
    async with driven(app):
        receipt = await app.enqueue("order.created", {})
    assert UUID(receipt.id).version == 7


def test_a_handler_whose_signature_cannot_be_filled_is_refused_at_once(app):
    with pytest.raises(HandlerError, match="ship"):

        @app.handler("order.created")
        async def ship(order: dict, warehouse: str): ...


def test_two_handlers_of_one_kind_are_refused(app):
    app.add_handler("order.created", lambda order: None)
    with pytest.raises(HandlerError, match=r"second handler for 'order\.created'"):
        app.add_handler("order.created", lambda order: None)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("form", [lambda n: n, lambda n: {"a": [1, {"b": n}]}, OrderPrice, lambda n: (n,)])
async def test_a_number_that_json_would_make_null_is_refused_at_the_door(app, number, form):
    with pytest.raises(PayloadError, match="NaN or an infinite number"):
        app.draft("order.created", form(number))
    for priced in ([number], {number}, form(number)):
        with pytest.raises(PayloadError, match=r"the metadata of a .* NaN"):
            app.draft("order.created", {}, metadata={"price": priced})


def test_metadata_that_json_does_not_know_is_refused_at_the_door(app):
    with pytest.raises(DraftError, match=r"the metadata of a .* TypeError"):
        app.draft("order.created", {}, metadata={"thing": object()})


def test_a_null_is_no_number(app):
    assert app.draft("order.created", {"a": None, "b": 1.5}).payload == b'{"a":null,"b":1.5}'


async def test_bytes_say_what_they_are(app, in_memory):
    got = []

    def ship(order, letter: Letter):
        got.append((order, letter.content_type))

    app.add_handler("order.created", ship)
    async with in_memory(app) as test:
        await app.enqueue("order.created", b'{"order": 17}', content_type="text/json; charset=utf-8")
        await app.enqueue("order.created", b"\x08\x11", content_type="application/protobuf")
        await test.run_until_idle()
    told = {content_type: order for order, content_type in got}
    assert told == {"text/json; charset=utf-8": {"order": 17}, "application/protobuf": b"\x08\x11"}


@pytest.mark.parametrize(("payload", "content_type"), [({"order": 17}, "text/json"), (b"x", ""), (b"x", 5)])
async def test_a_content_type_that_says_nothing_about_bytes_is_refused(app, payload, content_type):
    with pytest.raises(DraftError, match="content_type"):
        app.draft("order.created", payload, content_type=content_type)
