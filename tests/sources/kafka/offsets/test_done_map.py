"""What is done beyond the committed offset, written beside it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.sources.kafka.offsets.done_map import LIMIT, read_map, write_map
from redrive.sources.kafka.offsets.rice_code import NARROW, WIDE, BitReader, best_k, cost, rice

FAR = 1 << 62


@st.composite
def maps(draw):
    offset = draw(st.integers(0, 1 << 40))
    at, ranges = offset, []
    for gap, run in draw(
        st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(1, 1 << 20)), min_size=1, max_size=80)
    ):
        ranges.append((at + gap, at + gap + run))
        at += gap + run
    return offset, ranges


@given(maps(), st.sampled_from([WIDE, NARROW]))
def test_a_map_that_fits_comes_back_as_it_was(case, alphabet):
    offset, ranges = case
    text = write_map(offset, ranges, alphabet=alphabet)
    assert read_map(offset, text, end=FAR) == ranges


@given(maps(), st.integers(2, 60), st.sampled_from([WIDE, NARROW]))
def test_a_map_that_does_not_fit_keeps_its_longest_beginning(case, limit, alphabet):
    offset, ranges = case
    text = write_map(offset, ranges, limit=limit, alphabet=alphabet)
    kept = read_map(offset, text, end=FAR)
    assert len(text) <= limit
    assert kept == ranges[: len(kept)]


def test_one_stuck_record_before_fifty_thousand_done_costs_a_few_characters():
    assert len(write_map(10, [(11, 50_011)])) < 12


@pytest.mark.parametrize("touching", [[(10, 12)], [(11, 13), (13, 15)], [(11, 13), (12, 15)]])
def test_ranges_that_touch_are_not_written_for_they_would_be_read_as_others(touching):
    with pytest.raises(ValueError, match="not apart"):
        write_map(10, touching)


def test_nothing_done_beyond_means_no_text():
    assert write_map(10, []) == ""


@pytest.mark.parametrize(("open_part", "least"), [(0.5, 55_000), (0.1, 100_000), (0.01, 600_000)])
def test_a_full_map_reaches_far(open_part, least):
    chance, ranges, at = random.Random(7), [], 0
    while at < 1_000_000:
        at += 1
        while chance.random() < open_part:
            at += 1
        start = at
        while chance.random() >= open_part:
            at += 1
        at += 1
        ranges.append((start, at))
    text = write_map(0, ranges)
    assert len(text) <= LIMIT
    assert read_map(0, text, end=FAR)[-1][1] >= least


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "\0",
        "R",
        "r",
        "R㐀",
        "hello",
        "{}",
        "AQI=",
        "R" + "A" * 30,
        "\x01streams",
        "R" + "䶵" * 4000,
        "x" * 9000,
    ],
)
def test_foreign_metadata_means_no_map(text):
    assert read_map(5, text, end=FAR) == []


def test_a_torn_or_changed_map_means_no_map():
    text = write_map(0, [(3, 9), (20, 400), (999, 1200)])
    assert read_map(0, text[:-1], end=FAR) == []
    assert read_map(0, text[:2] + "㐀" + text[3:], end=FAR) == []


def test_a_map_of_another_offset_means_no_map():
    assert read_map(1, write_map(0, [(3, 9)]), end=FAR) == []


def test_a_map_that_reaches_beyond_the_log_is_refused():
    text = write_map(0, [(3, 1 << 31)])
    assert read_map(0, text, end=1000) == []


def test_the_trailing_nul_of_some_clients_does_no_harm():
    assert read_map(0, write_map(0, [(3, 9)]) + "\0", end=FAR) == [(3, 9)]


@given(st.text(max_size=50))
def test_no_text_whatsoever_breaks_the_reader(text):
    for tag in ("", "R", "r"):
        read_map(0, tag + text, end=FAR)


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=50))
def test_numbers_come_back_from_their_bits(numbers):
    k = best_k(numbers)
    bits = "".join(rice(numbers, k))
    assert len(bits) == sum(cost(number, k) for number in numbers)
    reader = BitReader(bits)
    assert [reader.rice(k) for _ in numbers] == numbers
