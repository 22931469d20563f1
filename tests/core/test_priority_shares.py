"""How priorities share the turns."""

from __future__ import annotations

from collections import Counter
from itertools import count, repeat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.priority_shares import take

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTHING: tuple[str, ...] = ()


def endless(*names: str) -> list[Iterator[str]]:
    return [repeat(name) if name else iter(NOTHING) for name in names]


def dealt(streams: list[Iterator[str]], limits: list[int]) -> list[str]:
    turn, taken = 0, []
    for limit in limits:
        items, turn = take(streams, limit, turn)
        taken.extend(items)
    return taken


@pytest.mark.parametrize(
    ("streams", "shares"),
    [
        (("high", "medium", "low"), {"high": 600, "medium": 300, "low": 100}),
        (("high", "medium", ""), {"high": 700, "medium": 300}),
        (("high", "", "low"), {"high": 900, "low": 100}),
        (("", "medium", "low"), {"medium": 900, "low": 100}),
        (("", "", "low"), {"low": 1000}),
        (("", "medium", ""), {"medium": 1000}),
        (("high", "", ""), {"high": 1000}),
        (("", "", ""), {}),
    ],
)
@pytest.mark.parametrize("limit", [1, 7, 10, 500])
def test_unused_turns_pass_to_the_highest_priority_that_has_letters(
    streams: tuple[str, ...], shares: dict[str, int], limit: int
) -> None:
    limits = [limit] * (1000 // limit) + [1000 % limit]
    assert Counter(dealt(endless(*streams), limits)) == shares


@given(st.lists(st.integers(0, 40), max_size=60))
def test_shares_hold_however_the_turns_are_cut_into_calls(limits: list[int]) -> None:
    taken = dealt(endless("high", "medium", "low"), limits)
    assert len(taken) == sum(limits)
    for start in range(0, len(taken) - 9, 10):
        assert Counter(taken[start : start + 10]) == {"high": 6, "medium": 3, "low": 1}


@given(st.integers(0, 9))
def test_every_ten_letters_hold_a_low_one_wherever_the_count_starts(turn: int) -> None:
    taken, _ = take(endless("high", "medium", "low"), 10, turn)
    assert taken.count("low") == 1


sizes = st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))


@given(sizes, st.integers(1, 120), st.integers(0, 25))
def test_nothing_is_lost_or_reordered(sizes: tuple[int, int, int], limit: int, turn: int) -> None:
    wanted = [[(stream, place) for place in range(size)] for stream, size in enumerate(sizes)]
    streams = [iter(items) for items in wanted]
    taken: list[tuple[int, int]] = []
    while items := take(streams, limit, turn):
        page, turn = items
        taken.extend(page)
        if len(page) < limit:
            break
    for stream, items_of_it in enumerate(wanted):
        assert [item for item in taken if item[0] == stream] == items_of_it
    assert len(taken) == sum(sizes)


@given(sizes, st.integers(-3, 50), st.integers(0, 9))
def test_what_was_not_taken_is_still_in_its_stream(sizes: tuple[int, int, int], limit: int, turn: int) -> None:
    streams = [iter(range(size)) for size in sizes]
    taken, _ = take(streams, limit, turn)
    assert len(taken) == max(0, min(limit, sum(sizes)))
    assert len(taken) + sum(len(list(stream)) for stream in streams) == sum(sizes)


def test_letters_that_are_false_are_letters() -> None:
    streams = [iter([None, 0]), iter([""]), iter([False])]
    assert sorted(map(str, take(streams, 10, 0)[0])) == ["", "0", "False", "None"]


def test_an_endless_stream_is_only_read_as_far_as_needed() -> None:
    high = count()
    take([high, iter(()), iter(())], 500, 0)
    assert next(high) == 500
