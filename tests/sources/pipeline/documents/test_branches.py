"""When a document has ended, from the notes about its branches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.sources.pipeline.documents.branches import ended_at


@pytest.mark.parametrize(
    ("ends", "instant"),
    [
        ({}, None),
        ({"": 5.0}, 5),
        ({"1of2": 5.0}, None),
        ({"1of2": 5.0, "2of2": 7.0}, 7),
        ({"1of2/1of3": 1.0, "1of2/2of3": 2.0, "2of2": 3.0}, None),
        ({"1of2/1of3": 1.0, "1of2/2of3": 2.0, "1of2/3of3": 9.0, "2of2": 3.0}, 9),
        ({"": 1.0, "1of2": 2.0}, None),  # two runs of the first branch: the second fanned out
        ({"1of2": 1.0, "2of2": 1.0, "1of3": 2.0}, None),  # the graph was changed between two runs
    ],
)
def test_a_document_has_ended_when_every_branch_has(ends, instant):
    assert ended_at(ends, {}) == instant


def test_what_was_put_aside_has_not_ended():
    assert ended_at({"2of2": 5.0}, {"1of2": 1.0}) is None
    assert ended_at({}, {"": 1.0}) is None


def test_a_copy_that_was_put_aside_after_the_end_has_to_end_too():
    assert ended_at({"": 5.0}, {"": 6.0}) is None
    assert ended_at({"": 7.0}, {"": 6.0}) == 7
    assert ended_at({"1of2": 5.0, "2of2": 9.0}, {"": 6.0}) is None
    assert ended_at({"1of2": 8.0, "2of2": 9.0}, {"": 6.0}) == 9
    assert ended_at({"1of2": 5.0, "2of2": 9.0}, {"1of2": 6.0}) is None


def test_a_body_that_one_branch_kept_waits_only_for_what_is_below_it():
    ends = {"1of2/1of2": 1.0, "1of2/2of2": 2.0}
    assert ended_at(ends, {}, "1of2") == 2
    assert ended_at(ends, {}) is None


@st.composite
def trees(draw, branch="", depth=0):
    """The leaves of a document's way."""
    count = draw(st.integers(1, 3)) if depth < 3 else 1
    if count == 1:
        return [branch]
    before = f"{branch}/" if branch else ""
    return [leaf for n in range(1, count + 1) for leaf in draw(trees(f"{before}{n}of{count}", depth + 1))]


@given(trees(), st.data())
def test_whichever_branch_is_missing_the_document_has_not_ended(leaves, data):
    ends = {leaf: float(n) for n, leaf in enumerate(leaves)}
    assert ended_at(ends, {}) == len(leaves) - 1
    del ends[data.draw(st.sampled_from(leaves))]
    assert ended_at(ends, {}) is None


@given(st.dictionaries(st.text(alphabet="0123of/.x", max_size=8), st.floats(0, 9), max_size=6))
def test_no_notes_raise(notes):
    ended_at(notes, notes)
