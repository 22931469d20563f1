"""What a lens shows of a letter, and the query that finds its letters again."""

from __future__ import annotations

import pytest

from redrive.core.letter import Category, Letter
from redrive.core.query import LENSES, parse
from redrive.core.query.lenses import lens_named, place_of_origin, term_of, value_of
from redrive.errors import QueryError


@pytest.mark.parametrize(
    ("origin", "place"),
    [
        ("kafka:orders/3@17", "kafka:orders"),
        ("kafka:orders", "kafka:orders"),
        ("kafka:/3@17", "kafka:"),
        ("pipeline:embed/de", "pipeline:embed"),
        ("webhook:stripe", "webhook:stripe"),
        ("outbox", "outbox"),
        ("event:01939a3e-0000-7000-8000-000000000001", "event"),
        ("events:1", "events:1"),
        ("s3://bucket/key", "s3://bucket"),
        ("/ctx/sub", "/ctx"),
        ("bücher:größe/3", "bücher:größe"),
        ("", ""),
    ],
)
def test_an_origin_names_a_place_and_behind_a_slash_a_position_in_it(origin, place):
    assert place_of_origin(origin) == place
    assert place_of_origin(place) == place


@pytest.mark.parametrize(
    ("lens", "value", "text"),
    [
        ("origin", "kafka:orders", "origin:kafka:orders,kafka:orders/*"),
        ("origin", "event", "origin:event,event/*,event:*"),
        ("origin", "", 'origin:""'),
        ("origin", None, "-origin:*"),
        ("origin", "two words", 'origin:"two words","two words/"*'),
        ("kind", "order.created", "kind:order.created"),
        ("kind", "a*", 'kind:"a*"'),
        ("category", None, "-category:*"),
        ("tenant", "a\0b", "tenant:a*b"),
        ("tenant", "x" * 501, f"tenant:{'x' * 500}*"),
    ],
)
def test_a_value_has_a_query_that_reads_back(lens, value, text):
    assert str(term_of(lens, value)) == text
    assert parse(text).terms


def test_a_letter_without_a_value_has_none_and_an_empty_one_is_another():
    letter = Letter("a", "q", "order", b"", tenant="", category=Category.NETWORK)

    assert {lens: value_of(letter, lens) for lens in LENSES} == {
        "origin": None, "kind": "order", "category": "network", "error_type": None, "release": None, "tenant": "",
    }  # fmt: skip


def test_an_unknown_lens_is_refused_with_those_there_are():
    with pytest.raises(
        QueryError, match=r"cannot group by 'error', did you mean 'error_type'\? there are fingerprint, o"
    ):
        lens_named("error")
