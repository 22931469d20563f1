"""What comes in: paused above the bounds, resumed only at half of them, each partition for itself."""

from __future__ import annotations

import pytest
from tests.sources.kafka.samples import partition, record

from redrive.sources.kafka.control.backpressure import Backpressure
from redrive.sources.kafka.control.partition import Partition

LONG_AGO = 1000.0  # seconds; longer than any excess is waited out


class Client:
    """Stands for the Kafka client: keeps which partitions are paused, and how often it was asked."""

    def __init__(self) -> None:
        self.paused, self.asked = set(), 0

    def pause(self, places) -> None:
        self.asked += 1
        self.paused |= {place.partition for place in places}

    def resume(self, places) -> None:
        self.asked += 1
        self.paused -= {place.partition for place in places}


class Scene:
    """Partitions, what is in memory of them, and a clock that moves so far that nothing is waited out."""

    def __init__(self, *, records: int = 1000, most_bytes: int = 1000, partitions: int = 1) -> None:
        self.client, self.flow, self.now = Client(), Backpressure(records, most_bytes), 0.0
        self.partitions = [Partition(partition(number), 0, [], 0.0) for number in range(partitions)]
        self._open: dict[int, list] = {number: [] for number in range(partitions)}
        self._next = dict.fromkeys(range(partitions), 0)

    def hold(self, count: int, *, of: int = 0, size: int = 0) -> None:
        """Receive records, or complete them, until *count* of a partition are in memory."""
        held, one = self._open[of], self.partitions[of]
        while len(held) > count:
            one.complete(held.pop(0))
        while len(held) < count:
            held.append(record(self._next[of], of=one.assignment, size=size))
            self._next[of] += 1
            one.receive(held[-1:])

    def step(self, *, shut: bool = False) -> set[int]:
        """Let the flow look twice, long after each other; return which partitions are paused."""
        for _ in range(2):
            self.now += LONG_AGO
            self.flow.step(self.client, self.partitions, self.now, shut=shut)
        assert {each.assignment.partition for each in self.partitions if each.paused} == self.client.paused
        return set(self.client.paused)


def test_all_are_paused_above_the_bytes_and_resumed_only_at_half_of_them():
    scene = Scene(most_bytes=1000, partitions=2)
    scene.hold(10, size=100)
    assert scene.step() == set()  # as many as may be
    scene.hold(11, size=100)
    assert scene.step() == {0, 1}
    for count in (10, 9, 6):
        scene.hold(count, size=100)
        assert scene.step() == {0, 1}, count
    scene.hold(5, size=100)
    assert scene.step() == set()
    scene.hold(10, size=100)
    assert scene.step() == set()  # the whole bound holds again


def test_bytes_of_all_partitions_count_together():
    scene = Scene(most_bytes=1000, partitions=2)
    scene.hold(6, of=0, size=100)
    scene.hold(5, of=1, size=100)
    assert scene.step() == {0, 1}


def test_a_partition_is_paused_above_its_share_of_records_and_resumed_only_at_half_of_it():
    scene = Scene(records=20, partitions=2)
    scene.hold(10)
    assert scene.step() == set()
    scene.hold(11)
    assert scene.step() == {0}
    for count in (10, 9, 6):
        scene.hold(count)
        assert scene.step() == {0}, count
    scene.hold(5)
    assert scene.step() == set()
    scene.hold(10)
    assert scene.step() == set()


def test_a_short_excess_is_waited_out_and_a_long_one_is_not():
    scene = Scene(records=10)
    scene.hold(11)
    scene.flow.step(scene.client, scene.partitions, 100.0, shut=False)
    scene.flow.step(scene.client, scene.partitions, 100.2, shut=False)
    assert (scene.client.paused, scene.flow.must_wait) == (set(), True)
    scene.hold(10)
    scene.flow.step(scene.client, scene.partitions, 100.24, shut=False)  # it is over; the next begins anew
    scene.hold(11)
    scene.flow.step(scene.client, scene.partitions, 100.3, shut=False)
    scene.flow.step(scene.client, scene.partitions, 100.5, shut=False)
    assert scene.client.paused == set()
    scene.flow.step(scene.client, scene.partitions, 100.6, shut=False)
    assert (scene.client.paused, scene.flow.must_wait) == ({0}, False)


def test_the_client_is_asked_only_when_something_changes():
    scene = Scene(records=10)
    scene.hold(11)
    for _ in range(5):
        scene.step()
    scene.hold(0)
    for _ in range(5):
        scene.step()
    assert scene.client.asked == 2


def test_a_window_that_is_too_long_is_paused_until_it_is_half_as_long(monkeypatch):
    monkeypatch.setattr("redrive.sources.kafka.control.backpressure._LONGEST_WINDOW", 100)
    scene, stuck = Scene(), (0, 20, 60)  # each holds back the commits of all that follow
    [one] = scene.partitions
    records = one.receive([record(n, of=one.assignment) for n in range(101)])
    for each in records:
        if each.offset not in stuck:
            one.complete(each)
    assert scene.step() == {0}
    one.complete(records[0])
    assert (len(one.tracker), scene.step()) == (81, {0})
    one.complete(records[20])
    assert (len(one.tracker), scene.step()) == (41, set())


@pytest.mark.parametrize("why", ["shut", "halted"])
def test_what_is_shut_or_halted_is_paused_however_little_there_is(why):
    scene = Scene(partitions=2)
    scene.partitions[0].halted = "its dead letters are not taken" if why == "halted" else ""
    assert scene.step(shut=why == "shut") == ({0} if why == "halted" else {0, 1})
    scene.partitions[0].halted = ""
    assert scene.step() == set()
