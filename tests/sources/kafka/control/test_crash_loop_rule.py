"""Crash loops: the record that kills is found, and its neighbours in other partitions are never blamed for it."""

from __future__ import annotations

import pytest
from tests.sources.kafka.samples import partition as assignment
from tests.sources.kafka.samples import record

from redrive.errors import SettingsError
from redrive.sources.kafka import KafkaConfig
from redrive.sources.kafka.control.crash_loops import CrashLoopGuard
from redrive.sources.kafka.control.partition import Partition
from redrive.sources.kafka.offsets.start_note import read_note

LIMIT = 3


class Life:
    """One start of a consumer of several partitions, whose notes are *kept* when it dies."""

    def __init__(self, kept: dict[int, str], numbers: tuple[int, ...]) -> None:
        self.kept, self.buried, self.running = kept, [], []
        self.guard = CrashLoopGuard(
            LIMIT, 10, self._commit, lambda event: self.buried.append(event.partition), self.running.extend
        )
        self.partitions = [Partition(assignment(number), 0, [], 0.0) for number in numbers]
        self.by_assignment = {each.assignment: each for each in self.partitions}
        for each in self.partitions:
            self.guard.assigned(each, read_note(kept.get(each.assignment.partition, ""))[0])

    def begin(self):
        records = [record(0, of=each.assignment) for each in self.partitions]
        for one in records:
            self.by_assignment[one.assignment].tracker.add(one)
        self.running += self.guard.admit(records)
        return self.now()

    def step(self):
        self.running += self.guard.step()
        return self.now()

    def complete(self, one):
        self.by_assignment[one.assignment].complete(one)

    def now(self):
        """Return what began since the last time."""
        begun, self.running[:] = list(self.running), []
        return begun

    def _commit(self, partitions):
        for each in partitions:
            self.kept[each.assignment.partition] = each.note(each.tracker.watermark)


@pytest.mark.parametrize("orders", [[(0, 1)], [(0, 1), (1, 0)]])
def test_a_record_that_never_ran_while_the_consumer_died_alone_is_not_convicted(orders):
    kept: dict[int, str] = {}
    for start in range(20):
        life = Life(kept, orders[start % len(orders)])
        running = life.begin()  # the record of partition 0 kills, that of partition 1 is slow
        while not life.buried and not any(one.partition == 0 for one in running):
            for one in running:
                life.complete(one)
            running = life.step()
        if life.buried:
            break
    assert life.buried == [0]
    assert start >= LIMIT + 3


def test_only_one_record_of_all_partitions_in_a_crash_loop_runs_at_a_time():
    life = Life({0: "b3.", 1: "b3."}, (0, 1))
    [first] = life.begin()
    assert life.step() == []
    life.complete(first)
    [second] = life.step()
    assert {first.partition, second.partition} == {0, 1}


def test_a_limit_that_no_note_can_hold_is_refused():
    with pytest.raises(SettingsError, match="crash_loop_limit"):
        KafkaConfig(crash_loop_limit=13)
