"""Fields, options and extras: each has a meaning, no meaning is left over, and every example works."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from importlib import import_module

import msgspec
import pytest
from tests.docs.reference.test_reference import generate, reference

from redrive import Redrive, RetryPolicy
from redrive.core.breaker import BreakerRules
from redrive.core.budget import BudgetRules
from redrive.core.classify import RELAY
from redrive.core.why import Why
from redrive.desk.desk import Desk
from redrive.engine.options import Options

tables = generate.field_tables
SHAPES = [getattr(import_module(module), name) for module, names in generate.SHAPES.items() for name in names]
EXPLAINED = {struct.__name__: struct for struct in (*tables.STRUCTS, *SHAPES, BreakerRules, BudgetRules)}
NAMES = {"RetryPolicy": RetryPolicy, "RELAY": RELAY, "UTC": UTC, "datetime": datetime, "timedelta": timedelta}


@pytest.mark.parametrize("struct", EXPLAINED.values(), ids=lambda struct: struct.__name__)
def test_every_field_has_a_meaning(struct):
    assert all(tables.meaning(struct.__name__, field.name) for field in msgspec.structs.fields(struct))


def test_no_meaning_is_left_over():
    fields = {name: set(struct.__struct_fields__) for name, struct in EXPLAINED.items()}
    fields["Record"] = set(tables.record_names())
    fields["Why"] = {why.name.lower() for why in Why}
    fields["common"] = set().union(*fields.values())
    left = {name: set(said) - fields.get(name, set()) for name, said in tables.FIELDS.items()}
    assert {name: over for name, over in left.items() if over} == {}


def test_no_meaning_says_what_the_common_one_says():
    common = tables.FIELDS["common"]
    assert [
        (s, n) for s, said in tables.FIELDS.items() for n in said if s != "common" and said[n] == common.get(n)
    ] == []


def test_every_method_of_the_desk_is_in_the_table_of_answers():
    rows = set(re.findall(r"^\| `(\w+)` \| ", reference("python.md").split("### What it answers")[1], re.MULTILINE))
    assert rows == {name for name in vars(Desk) if name[0] != "_" and callable(getattr(Desk, name))}


# ---------------------------------------------------------------------- options


def given(room, name, **more):
    """Return the option that the example of the reference gives."""
    return eval(f"dict({tables.OPTIONS[room][name]['example']})", NAMES | more)  # noqa: S307 - our own page


def test_every_option_has_a_meaning_and_none_is_left_over():
    assert set(tables.OPTIONS["handler"]) == set(Options.__annotations__)
    assert set(tables.OPTIONS["enqueue"]) == set(tables.draft_names())
    assert set(tables.OPTIONS["queue"]) == set(tables.queue_names())


def answer(payload: dict) -> str:
    return "ok"


@pytest.mark.parametrize("name", list(Options.__annotations__))
def test_the_example_of_a_handler_option_is_accepted(name):
    option = given("handler", name)
    assert list(option) == [name]
    Redrive("memory://").add_handler("order.created", answer, **option)


@pytest.mark.parametrize("name", tables.draft_names())
async def test_the_example_of_an_option_of_a_letter_is_accepted(name):
    app = Redrive("memory://")
    first = await app.enqueue("order.created", {})
    option = given("enqueue", name, first=first)
    assert list(option) == [name]
    payload = b"17;18" if name == "content_type" else {"order": 17}
    needed = {"unique_in": {"idempotency_key": "order-17"}, "after_failure": {"after": [first.id]}}.get(name, {})
    assert not (await app.enqueue("order.created", payload, **option, **needed)).duplicate
    await app.close()


@pytest.mark.parametrize("name", tables.queue_names())
def test_the_example_of_an_option_of_a_queue_is_accepted(name):
    Redrive("memory://").queue("mail", **given("queue", name))


# ---------------------------------------------------------------------- extras


def test_every_extra_is_explained_and_no_other():
    assert set(tables.OPTIONS["extras"]) == set(tables.declared_extras())
    rows = re.findall(r"^\| `(\w+)` \| ", reference("extras.md"), re.MULTILINE)
    assert rows == list(tables.declared_extras())
