"""The same failure has the same fingerprint, another one another; and no text is too much."""

from __future__ import annotations

from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.failures.fingerprint import fingerprint, template

FRAMES = ("shop.orders:ship", "shop.payments:charge")


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("order 17 is gone", "order <n> is gone"),
        ("took 1.5 s of 2,000", "took <n> s of <n>"),
        ("user 3f2504e0-4f89-11d3-9a0c-0305e82c3301 is gone", "user <uuid> is gone"),
        ("object at 0x7f3a9c", "object at <hex>"),
        ("commit 9fceb02d0ae598e9", "commit <hex>"),
        ("""no key 'a b' in "c" or `d`""", "no key <text> in <text> or <text>"),
        ("can't go on, won't go on", "can't go on, won't go on"),
        ("mail to jo.doe+x@example.co.uk failed", "mail to <email> failed"),
        ("GET https://api.example.com/v1/orders/17?x=1 failed", "GET <url> failed"),
        ("at 2026-11-15T22:03:20.123Z it broke", "at <time> it broke"),
        ("on 2026-11-15 it broke", "on <time> it broke"),
        ("cannot open /var/lib/shop/17.txt now", "cannot open <path> now"),
        (r"cannot open C:\temp\x now", "cannot open <path> now"),
        ("refused by 10.0.0.17:5432", "refused by <n>"),
        ("customer cus_9s6XKzkNRiz8i3 unknown", "customer <id> unknown"),
        ("sha256 of wave2", "sha<n> of wave<n>"),
        ("nothing changes here", "nothing changes here"),
        ("", ""),
    ],
)
def test_changing_parts_are_replaced_by_their_kind(message, title):
    assert template(message) == title


def test_failures_that_differ_in_changing_parts_are_the_same():
    one = fingerprint("ValueError", FRAMES, "order 17 of jo@example.com is gone")
    other = fingerprint("ValueError", list(FRAMES), "order 99 of al@example.org is gone")
    assert one == other


@pytest.mark.parametrize(
    ("error_type", "frames", "message"),
    [
        ("KeyError", FRAMES, "order 17"),
        ("ValueError", FRAMES[:1], "order 17"),
        ("ValueError", FRAMES[::-1], "order 17"),
        ("ValueError", FRAMES, "parcel 17"),
        ("ValueError", (), "order 17"),
    ],
)
def test_another_type_place_or_message_is_another_failure(error_type, frames, message):
    assert fingerprint(error_type, frames, message).id != fingerprint("ValueError", FRAMES, "order 17").id


def test_the_depth_of_a_recursion_makes_no_difference():
    shallow, deep = (fingerprint("E", ("a:go", *("a:fall",) * depth), "x").id for depth in (2, 40))
    assert shallow == deep


def test_an_id_is_short_versioned_and_the_same_for_ever():
    """Stored letters carry it: if this changes, the version must."""
    assert fingerprint("ValueError", FRAMES, "order 17 is gone").id == "199ed705abbe6d1e-v1"


def test_the_explanation_names_type_places_and_title():
    why = fingerprint("ValueError", FRAMES, "order 17").explanation
    assert why == "v1: ValueError at shop.orders:ship > shop.payments:charge, saying 'order <n>'"


@pytest.mark.parametrize(
    "piece", ["'", '"', "a@", "/a", "1", "a1'", "9-", "http://", "0x", "\ud800", "\0", "é1", "a" * 50 + "!", "1.1:"]
)
def test_a_megabyte_of_hostile_text_costs_next_to_nothing(piece):
    text = piece * (1_000_000 // len(piece))
    start = thread_time()  # of its own: others may have the machine
    print_ = fingerprint(text, (text,) * 100, text)
    assert thread_time() - start < 1
    assert len(print_.template) < 10_000


@given(st.text(st.characters(), max_size=60), st.lists(st.text(st.characters(), max_size=9)), st.text(st.characters()))
def test_any_text_has_one_fingerprint_that_can_be_stored(error_type, frames, message):
    print_ = fingerprint(error_type, frames, message)
    assert len(print_.id) == 19
    print_.template.encode()
    assert print_ == fingerprint(error_type, tuple(frames), message)


@given(st.integers(0, 10**18), st.integers(0, 10**18))
def test_numbers_never_tell_failures_apart(one, other):
    first, second = (fingerprint("E", FRAMES, f"row {n} of table t{n % 1_000}").id for n in (one, other))
    assert first == second
