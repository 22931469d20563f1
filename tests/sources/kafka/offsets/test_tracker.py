"""Which offset is safe to commit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.kafka.samples import partition, record

from redrive.sources.kafka.offsets.tracker import OffsetTracker
from redrive.sources.kafka.records.record import Record


def tracked(*offsets: int, restored=()):
    tracker = OffsetTracker(restored)
    records = {offset: record(offset) for offset in offsets}
    for each in records.values():
        tracker.add(each)
    return tracker, records


def test_before_the_first_record_there_is_nothing_to_commit():
    assert OffsetTracker().watermark is None


def test_the_watermark_is_the_first_record_that_is_not_done():
    tracker, records = tracked(0, 1, 2)
    tracker.complete(records[1])
    assert tracker.watermark == 0
    tracker.complete(records[0])
    assert tracker.watermark == 2
    tracker.complete(records[2])
    assert tracker.watermark == 3


def test_commits_do_not_stop_at_a_hole_left_by_compaction_or_a_transaction():
    tracker, records = tracked(0, 1, 3, 9)
    for each in records.values():
        tracker.complete(each)
    assert tracker.watermark == 10


def test_a_group_that_starts_late_in_the_log_commits():
    tracker, records = tracked(5000, 5001)
    assert tracker.watermark == 5000
    tracker.complete(records[5000])
    assert tracker.watermark == 5001


def test_the_end_of_the_log_moves_the_watermark_only_when_nothing_is_open():
    tracker, records = tracked(0)
    tracker.reached(7)
    assert tracker.watermark == 0
    tracker.complete(records[0])
    assert tracker.watermark == 7


def test_a_partition_that_holds_nothing_for_us_yet_has_a_place_to_commit():
    tracker = OffsetTracker()
    tracker.reached(5)
    assert tracker.watermark == 5


def test_completing_twice_changes_nothing():
    tracker, records = tracked(0, 1)
    tracker.complete(records[1])
    tracker.complete(records[1])
    assert (tracker.open, tracker.watermark) == (1, 0)


def test_what_is_done_beyond_the_watermark_is_known_by_ranges():
    tracker, records = tracked(0, 1, 2, 3, 7, 8)
    for offset in (1, 2, 7):
        tracker.complete(records[offset])
    assert tracker.done_beyond() == [(1, 3), (7, 8)]


def test_what_an_earlier_owner_had_done_is_not_run_again():
    tracker = OffsetTracker([(11, 13), (15, 16)])
    runs = [offset for offset in range(10, 17) if tracker.add(record(offset))]
    assert runs == [10, 13, 14, 16]
    assert tracker.skipped == 3


@pytest.mark.parametrize("restored", [[], [(11, 13), (15, 16)]])
def test_records_that_come_together_are_noted_as_if_they_came_one_by_one(restored):
    together, alone = OffsetTracker(restored), OffsetTracker(restored)
    came = [record(offset) for offset in (10, 11, 12, 14, 15, 16)]
    fresh = together.add_all(came)
    assert [each.offset for each in fresh] == [each.offset for each in came if alone.add(each)]
    for tracker in (together, alone):
        assert (tracker.watermark, tracker.next_offset, len(tracker)) == (10, 17, 6)
        assert (tracker.open, tracker.skipped) == (len(fresh), 6 - len(fresh))
    assert together.done_beyond() == alone.done_beyond()


def test_what_an_earlier_owner_had_done_stays_known_until_it_is_received():
    tracker = OffsetTracker([(11, 13), (15, 20)])
    tracker.add(record(10))
    assert tracker.done_beyond() == [(11, 13), (15, 20)]
    for offset in range(11, 17):
        tracker.add(record(offset))
    assert tracker.done_beyond() == [(11, 13), (15, 20)]


def test_a_restored_record_at_the_head_moves_the_watermark():
    tracker = OffsetTracker([(10, 12)])
    tracker.add(record(10))
    tracker.add(record(11))
    assert (tracker.watermark, len(tracker)) == (12, 0)


def test_a_done_record_behind_a_stuck_one_is_not_kept_in_memory_and_stays_as_it_was_for_who_keeps_it():
    tracker, records = tracked(0, 1)
    tracker.complete(records[1])
    assert records[1].value == b"v"
    assert not any(isinstance(slot, Record) for slot in tracker._window)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=60), st.randoms())
def test_the_watermark_is_never_past_an_open_record_and_nothing_done_is_forgotten(steps, chance):
    offsets, at = [], 0
    for step in steps:
        offsets.append(at)
        at += step
    tracker, owner = OffsetTracker(), partition()
    records = [record(offset, of=owner) for offset in offsets]
    for each in records:
        tracker.add(each)
    done: set[int] = set()
    for each in chance.sample(records, len(records)):
        tracker.complete(each)
        done.add(each.offset)
        still_open = [offset for offset in offsets if offset not in done]
        assert tracker.watermark == min(still_open, default=offsets[-1] + 1)
        covered = {o for low, high in tracker.done_beyond() for o in range(low, high)}
        assert covered & set(offsets) == {offset for offset in done if offset >= tracker.watermark}
