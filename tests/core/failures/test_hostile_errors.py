"""Errors that bite: whatever an error carries or is called, it is judged and can be kept."""

from __future__ import annotations

from typing import Literal

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.failures.made import made

from redrive.core.classify import HANDLER, INBOX, KAFKA, WORKFLOW, classify, classify_text
from redrive.core.letter import Category
from redrive.core.policy import DEFAULT_RETRY_POLICY, RetryPolicy

POLICY = DEFAULT_RETRY_POLICY


class Bomb(Exception):
    def __getattribute__(self, name):
        raise SystemExit(name)


class Endless(Exception):
    def __getattr__(self, name):
        return self.anything


class Trap:
    @property
    def __class__(self):
        raise RuntimeError

    def __bool__(self):
        raise RuntimeError

    def __getitem__(self, key):
        raise RuntimeError


class Riddle(int):
    def __ge__(self, other):
        raise RuntimeError

    __le__ = __lt__ = __gt__ = __eq__ = __ge__

    def __hash__(self):
        raise RuntimeError


class Meta(type):
    def __hash__(cls):
        raise RuntimeError

    def __eq__(cls, other):
        raise RuntimeError


TRAITS = ("status_code", "status", "code", "response", "headers", "retry_after", "errno")


def circle() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


# Made inside the test: they would bite pytest, too.
BITING = {
    "raises when asked for anything": lambda: Bomb("x"),
    "has endless attributes": lambda: Endless("x"),
    "has a class that cannot be hashed": lambda: Meta("Unhashable", (Exception,), {})("x"),
    "carries traps": lambda: made("shop.X", **dict.fromkeys(TRAITS, Trap())),
    "carries a number that cannot be compared": lambda: made("shop.X", **dict.fromkeys(TRAITS, Riddle(503))),
    "carries things": lambda: made("shop.X", **dict.fromkeys(TRAITS, object())),
    "has a status that raises": lambda: made("grpc.RpcError", code=lambda: 1 / 0),
    "has a status that is a trap": lambda: made("grpc.RpcError", code=Trap()),
    "has a status that is a trap's": lambda: made("grpc.RpcError", code=lambda: Trap()),  # noqa: PLW0108
    "is its own cause": circle,
}


@pytest.mark.parametrize("how", BITING)
@pytest.mark.parametrize("rules", [HANDLER, INBOX, KAFKA, WORKFLOW], ids=lambda rules: rules.name)
def test_no_error_bites_its_judge(how, rules):
    policy = RetryPolicy.exponential(terminal_errors=(KeyError, "x"), retryable_errors=(LookupError,))
    failure = classify(BITING[how](), policy, rules)
    assert failure.fingerprint.endswith("-v1") or not rules.is_grouped
    msgspec.json.encode(failure)


def test_two_errors_of_one_class_are_judged_by_what_each_carries():
    class Refused(Exception):
        pass

    def carrying(**traits):
        error = Refused("no")
        vars(error).update(traits)
        return error

    caused = Refused("no")
    caused.__cause__ = ConnectionResetError("by peer")
    plain, limited, after, reset = (
        classify(error, POLICY, KAFKA)
        for error in (Refused("no"), carrying(status_code=429), carrying(retry_after=7), caused)
    )

    assert plain.rule.startswith("no rule knows it")
    assert limited.rule == "it carries HTTP status 429"
    assert after.retry_after == 7
    assert reset.category is Category.NETWORK
    assert classify(Refused("again"), POLICY, KAFKA).rule == plain.rule


def test_a_class_whose_errors_compute_their_status_is_asked_each_time():
    class Answer(Exception):
        @property
        def status_code(self):
            return self.args[0]

    assert [classify(Answer(code), POLICY, KAFKA).rule for code in (404, 503)] == [
        "it carries HTTP status 404", "it carries HTTP status 503",
    ]  # fmt: skip


@given(st.text(st.characters()), st.text(st.characters()))
def test_any_text_can_be_judged_and_kept(error_type, message):
    for rules in (HANDLER, WORKFLOW):
        msgspec.json.encode(classify_text(error_type, message, POLICY, rules))


def test_a_failure_carries_what_groups_it():
    failure = classify(ValueError("order 17 is gone"), POLICY)
    assert (failure.error_type, failure.message) == ("ValueError", "order 17 is gone")
    assert (failure.template, failure.fingerprint[-3:]) == ("order <n> is gone", "-v1")


def test_what_a_handler_validates_itself_is_not_quoted_in_its_failure():
    class Order(pydantic.BaseModel):
        card: int

    for validate in (
        lambda: Order.model_validate({"card": "4111-s3cret"}),
        lambda: msgspec.convert({"card": "4111-s3cret"}, dict[str, Literal["visa"]]),
    ):
        with pytest.raises((pydantic.ValidationError, msgspec.ValidationError)) as caught:
            validate()
        failure = classify(caught.value, DEFAULT_RETRY_POLICY)
        assert "s3cret" not in failure.message + failure.template
        assert "nvalid" in failure.message or "should be" in failure.message
