"""
One owner after the other: what the next one reads from the last one's commit is true.

Each owner receives as far as it comes, finishes some of it and commits; then it is gone, and the
next one begins with the offset and the map that the commit has.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.kafka.samples import partition, record

from redrive.sources.kafka.offsets.done_map import read_map, write_map
from redrive.sources.kafka.offsets.tracker import OffsetTracker

END = 60
ORDERS = ["by hand", "in a transaction"]


def committed(tracker, how):
    """Return the offset and the ranges as the next owner reads them."""
    offset, ranges = (tracker.watermark, tracker.done_beyond()) if how == "by hand" else tracker.if_done(())
    return offset, read_map(offset, write_map(offset, ranges), end=END)


def one_owner(start, restored, far, chosen, log, how):
    """Receive *far* records of *log* from *start* on, do those that are *chosen*; return what it leaves."""
    tracker, owner = OffsetTracker(restored), partition()
    fresh = [each for each in [record(o, of=owner) for o in log if o >= start][:far] if tracker.add(each)]
    done = [each for each in fresh if chosen(each.offset)]
    for each in done:
        tracker.complete(each)
    if tracker.next_offset is None:
        return start, restored, set()
    return *committed(tracker, how), {each.offset for each in done}


@pytest.mark.parametrize("how", ORDERS)
@given(
    st.sets(st.integers(0, END - 1), min_size=1),
    st.lists(st.tuples(st.integers(0, END), st.sets(st.integers(0, END - 1))), max_size=6),
)
def test_the_next_owner_skips_exactly_what_was_done(how, log, owners):
    log, start, restored, done = sorted(log), 0, [], set()
    for far, chosen in owners:
        start, restored, now_done = one_owner(start, restored, far, chosen.__contains__, log, how)
        assert not done & now_done  # nothing runs again
        done |= now_done
        skipped = {o for o in log if o < start or any(low <= o < high for low, high in restored)}
        assert skipped == done  # nothing is skipped that nobody has done


@pytest.mark.parametrize("how", ORDERS)
def test_an_owner_that_stops_amid_what_was_done_before_it_leaves_a_true_map(how):
    start, restored, _ = one_owner(0, [], 10, lambda o: o not in {0, 6}, range(20), how)
    assert (start, restored) == (0, [(1, 6), (7, 10)])
    assert one_owner(start, restored, 3, lambda _: False, range(20), how) == (0, [(1, 6), (7, 10)], set())
    assert one_owner(start, restored, 3, lambda _: True, range(20), how) == (6, [(7, 10)], {0})
