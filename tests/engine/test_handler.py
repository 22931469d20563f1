from __future__ import annotations

import dataclasses
import enum
import functools
import uuid
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from tests.engine.handlers_for_processes import succeed
from tests.engine.starting import letter

from redrive.core.classify import Undecodable
from redrive.core.letter import BYTES, Letter
from redrive.core.policy import RetryPolicy
from redrive.engine.handler import build_handler
from redrive.errors import HandlerError

if TYPE_CHECKING:
    from decimal import Decimal as Unimported


@dataclasses.dataclass
class OrderData:
    order: int


class OrderStruct(msgspec.Struct):
    order: int


class OrderModel(pydantic.BaseModel):
    order: int


class Size(enum.Enum):
    SMALL = "small"


class Cat(msgspec.Struct, tag="cat"):
    lives: int = 9


class Dog(msgspec.Struct, tag="dog"):
    tail: bool = True


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    size: Size = Size.SMALL
    colour: Literal["red"] = "red"
    pet: Cat | Dog | None = None
    sizes: dict[Size, int] = {}


class CatModel(pydantic.BaseModel):
    kind: Literal["cat"]


class DogModel(pydantic.BaseModel):
    kind: Literal["dog"]


class StrictModel(pydantic.BaseModel, extra="forbid"):
    size: Size = Size.SMALL
    colour: Literal["red"] = "red"
    pet: Annotated[CatModel | DogModel, pydantic.Field(discriminator="kind")] | None = None
    sizes: dict[Size, int] = {}
    ident: uuid.UUID | None = None
    inner: CatModel | None = None


class Stranger:
    pass


def takes_strict(payload: Strict):
    return payload


def takes_strict_model(payload: StrictModel):
    return payload


def takes_nothing_said(payload):
    return payload


def takes_any(payload: Any):
    return payload


def takes_dict(payload: dict):
    return payload


def takes_list(payload: list[int]):
    return payload


def takes_int(payload: int):
    return payload


def takes_str(payload: str):
    return payload


def takes_bytes(payload: bytes):
    return payload


def takes_dataclass(payload: OrderData):
    return payload


def takes_struct(payload: OrderStruct):
    return payload


def takes_model(payload: OrderModel):
    return payload


def called(function: Any, one: Letter) -> Any:
    return build_handler("order", function).call(one)


@pytest.mark.parametrize(
    ("function", "payload", "content_type", "argument"),
    [
        (takes_nothing_said, b'{"order": 17}', "application/json", {"order": 17}),
        (takes_nothing_said, b"[1]", "application/json; charset=utf-8", [1]),
        (takes_nothing_said, b"[1]", "application/problem+json", [1]),
        (takes_nothing_said, "grüß".encode(), "text/plain; charset=utf-8", "grüß"),
        (takes_nothing_said, b"\x00\xff", BYTES, b"\x00\xff"),
        (takes_any, b"null", "application/json", None),
        (takes_dict, b'{"order": 17}', "application/json", {"order": 17}),
        (takes_list, b"[1, 2]", "application/json", [1, 2]),
        (takes_int, b"17", "application/json", 17),
        (takes_str, b'"hello"', "application/json", "hello"),
        (takes_str, b"hello", "text/plain", "hello"),
        (takes_bytes, b'{"order": 17}', "application/json", b'{"order": 17}'),
        (takes_dataclass, b'{"order": 17}', "application/json", OrderData(17)),
        (takes_struct, b'{"order": 17}', "application/json", OrderStruct(17)),
        (takes_model, b'{"order": 17}', "application/json", OrderModel(order=17)),
    ],
)
def test_a_payload_is_decoded_as_its_annotation_says(function, payload, content_type, argument):
    assert called(function, letter(payload, content_type=content_type)) == argument


@pytest.mark.parametrize(
    ("function", "payload", "content_type"),
    [
        (takes_nothing_said, b"{", "application/json"),
        (takes_nothing_said, b"", "application/json"),
        (takes_nothing_said, b"\xff", "text/plain"),
        (takes_nothing_said, b"[" * 100_000, "application/json"),
        (takes_nothing_said, b'["\xed\xa0\x80"]', "application/json"),
        (takes_dict, b"[1]", "application/json"),
        (takes_dict, b"a=1&b=2", "application/x-www-form-urlencoded"),
        (takes_dict, b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "application/json"),
        (takes_int, b'"17"', "application/json"),
        (takes_str, b"17", "application/json"),
        (takes_dataclass, b"{}", "application/json"),
        (takes_struct, b'{"order": "x"}', "application/json"),
        (takes_model, b'{"order": "s3cret"}', "application/json"),
        (takes_model, b"[" * 100_000, "application/json"),
    ],
)
def test_a_payload_that_does_not_decode_says_so_without_its_content(function, payload, content_type):
    with pytest.raises(Undecodable) as caught:
        called(function, letter(payload, content_type=content_type))

    assert "does not decode as" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None  # a decoder's own error may quote the payload


@pytest.mark.parametrize("function", [takes_strict, takes_strict_model])
@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"size": "s3cret"}, "size"),
        ({"colour": "s3cret"}, "colour"),
        ({"colour": "s3cret - at `$.s3cret`"}, "colour"),
        ({"pet": {"type": "s3cret", "kind": "s3cret"}}, "pet"),
        ({"sizes": {"s3cret": 1}}, "sizes"),
        ({"s3cret": 1}, "does not decode as Strict"),
    ],
)
def test_a_value_that_is_none_of_those_allowed_is_not_quoted_but_its_place_is_said(function, payload, said):
    with pytest.raises(Undecodable) as caught:
        called(function, letter(msgspec.json.encode(payload)))

    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("payload", [b'{"ident": "s3cret"}', b'{"inner": {"kind": "s3cret"}}'])
def test_what_pydantic_refuses_is_not_quoted_but_its_place_is_said(payload):
    with pytest.raises(Undecodable) as caught:
        called(takes_strict_model, letter(payload))

    assert "ident" in str(caught.value) or "inner.kind" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "found `s`" not in str(caught.value)


def only_letter(it: Letter):
    return it.id


def both(payload: dict, it: Letter):
    return payload, it.id


def both_turned(it: Letter, payload: dict):
    return payload, it.id


def by_name(*, payload: dict, it: Letter):
    return payload, it.id


def with_more(payload: dict, tries: int = 3, *, it: Letter, **more: int):
    return payload, it.id, tries, more


@pytest.mark.parametrize(
    ("function", "returned"),
    [
        (only_letter, "a"),
        (both, ({"order": 17}, "a")),
        (both_turned, ({"order": 17}, "a")),
        (by_name, ({"order": 17}, "a")),
        (with_more, ({"order": 17}, "a", 3, {})),
        (functools.partial(with_more, tries=5), ({"order": 17}, "a", 5, {})),
    ],
)
def test_a_parameter_annotated_letter_gets_the_letter_wherever_it_stands(function, returned):
    handler = build_handler("order", function)

    assert handler.wants_letter
    assert handler.call(letter()) == returned


class Shop:
    async def ship(self, payload: dict):
        return payload

    async def __call__(self, payload: dict):
        return payload


async def ship(payload: dict):
    return payload


@pytest.mark.parametrize(
    ("function", "engine"),
    [
        (ship, "async"),
        (Shop().ship, "async"),
        (Shop(), "async"),
        (functools.partial(ship), "async"),
        (takes_dict, "thread"),
        (lambda payload: payload, "thread"),
    ],
)
def test_async_functions_run_on_the_loop_and_the_others_in_threads(function, engine):
    assert build_handler("order", function).engine == engine


def no_parameters():
    pass


def two_payloads(first: dict, second: dict):
    pass


def letter_unsaid(payload, letter):
    pass


def two_letters(first: Letter, second: Letter):
    pass


def takes_stranger(payload: Stranger):
    pass


def takes_unimported(payload: Unimported):
    pass


def generates(payload: dict):
    yield payload


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (no_parameters, {}, "must take the payload"),
        (two_letters, {}, "must take the payload"),
        (two_payloads, {}, "'second'"),
        (takes_stranger, {}, "cannot be decoded into"),
        (takes_unimported, {}, "TYPE_CHECKING"),
        (generates, {}, "`yield`"),
        (Stranger, {}, "must be a function"),
        (17, {}, "must be a function"),
        (takes_dict, {"engine": "async"}, "leave out engine"),
        (takes_dict, {"engine": "rocket"}, "async, thread or process"),
        (takes_dict, {"timeout": 0}, "timeout is 0"),
        (takes_dict, {"timeout": float("nan")}, "timeout is nan"),
        (takes_dict, {"timeout": "30"}, "timeout is '30'"),
        (takes_dict, {"concurrency": 0}, "concurrency is 0"),
        (takes_dict, {"concurrency": 1.5}, "concurrency is 1.5"),
        (takes_dict, {"concurrency": True}, "concurrency is True"),
        (takes_dict, {"policy": "nevr"}, "'nevr' is none of never"),
        (takes_dict, {"policy": "constant:delay=soon"}, "delay is 'soon'"),
        (takes_dict, {"policy": 5}, "policy is 5 and must be a RetryPolicy or the text of one"),
        (takes_dict, {"policy": None}, "leave it out for the default"),
        (takes_dict, {"polcy": "never"}, "polcy is no option; did you mean policy?"),
        (takes_dict, {"timout": 3}, "timout is no option; did you mean timeout?"),
        (takes_dict, {"retries": 3}, "retries is no option; it belongs to the policy"),
        (takes_dict, {"max_attempts": 3}, "max_attempts is no option; it belongs to the policy"),
        (takes_dict, {"xyzzy": 3}, "xyzzy is no option"),
        (takes_dict, {"breaker": 5}, "breaker is 5"),
        (takes_dict, {"queue": None}, "queue is None"),
        (takes_dict, {"queue": ""}, "queue is ''"),
        (takes_dict, {"rules": "handler"}, "rules is 'handler'"),
        (takes_dict, {"succeeded": True}, "succeeded is True"),
        (takes_dict, {"succeeded": ship}, "not async"),
        (takes_dict, {"terminal_errors": ValueError}, "(ValueError,)"),
        (takes_dict, {"terminal_errors": "ValueError"}, "(ValueError,)"),
        (takes_dict, {"retryable_errors": (5,)}, "retryable_errors holds 5"),
        (letter_unsaid, {}, "annotate it: letter: Letter"),
        (lambda payload: payload, {"engine": "process"}, "a lambda"),
        (Shop().ship, {"engine": "process"}, "engine='thread'"),
        (succeed, {"engine": "process", "succeeded": lambda result: True}, "a lambda"),
    ],
)
def test_nonsense_is_refused_with_a_way_out(function, options, said):
    with pytest.raises(HandlerError, match="cannot use") as caught:
        build_handler("order", function, **options)

    assert said in str(caught.value)


def test_a_nested_function_cannot_run_in_a_process():
    def nested(payload: dict):
        pass

    with pytest.raises(HandlerError, match="inside a class or another function"):
        build_handler("order", nested, engine="process")


def test_all_problems_are_said_at_once():
    with pytest.raises(HandlerError) as caught:
        build_handler("order", no_parameters, timeout=-1, concurrency=0)

    assert [part in str(caught.value) for part in ("timeout", "concurrency", "payload")] == [True] * 3


def test_a_handlers_error_lists_are_added_to_its_policy():
    policy = RetryPolicy.exponential(max_attempts=7, terminal_errors=(KeyError,))
    handler = build_handler("order", takes_dict, policy=policy, terminal_errors=(ValueError,), retryable_errors=("X",))

    assert handler.policy.terminal_errors == (KeyError, ValueError)
    assert handler.policy.retryable_errors == ("X",)
    assert handler.policy.max_attempts == 7


def test_a_policy_may_be_given_as_text_as_it_is_to_enqueue():
    handler = build_handler("order", takes_dict, policy="constant:delay=5,max_attempts=2", terminal_errors=(KeyError,))

    assert (handler.policy.first, handler.policy.max_attempts) == (5.0, 2)
    assert handler.policy.terminal_errors == (KeyError,)


def test_a_handler_is_named_as_it_is_imported():
    assert build_handler("order", succeed).name == "tests.engine.handlers_for_processes:succeed"
