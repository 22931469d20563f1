"""The trace context as text: only a whole one counts, and headers that name one stay as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.trace_context import carrier_in, carrier_of, continuing

WHOLE = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


@pytest.mark.parametrize(
    "parent",
    [None, 1, "", "00", WHOLE + "0", WHOLE.upper(), "ff" + WHOLE[2:], WHOLE.replace("ab", "00"), f"{WHOLE}\r\nx: y"],
)
def test_what_is_no_trace_context_is_left_out(parent):
    assert carrier_of({"traceparent": parent, "tracestate": "a=1"}) == {}


def test_a_state_that_no_header_could_hold_is_left_out():
    assert carrier_of({"traceparent": WHOLE, "tracestate": "a=\n1"}) == {"traceparent": WHOLE}
    assert carrier_of({"traceparent": WHOLE, "tracestate": "a=1"}) == {"traceparent": WHOLE, "tracestate": "a=1"}


def test_headers_are_found_by_any_spelling_and_the_first_counts():
    other = WHOLE.replace("ab", "ef").encode()
    assert carrier_in([("a", None), ("TraceParent", WHOLE.encode()), ("traceparent", other)]) == {"traceparent": WHOLE}


def test_headers_that_name_a_trace_stay_as_they_are():
    own = [("Traceparent", b"anything")]
    assert continuing(own, {"traceparent": WHOLE}) == own
    assert continuing([("a", None)], {"traceparent": WHOLE}) == [("a", None), ("traceparent", WHOLE.encode())]
    assert continuing([("a", b"1")], {}) == [("a", b"1")]


@given(st.lists(st.tuples(st.sampled_from(["traceparent", "tracestate", "x"]), st.none() | st.binary())))
def test_any_headers_can_be_read(headers):
    carrier_in(headers)
