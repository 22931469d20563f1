"""Which record may run next to which."""

from __future__ import annotations

from tests.sources.kafka.samples import partition, record

from redrive.sources.kafka.execution.ordering import Chains
from redrive.sources.kafka.records.delay_queue import DelayQueue


def test_records_of_one_key_run_one_after_the_other_and_other_keys_flow():
    chains, owner = Chains("key_hash"), partition()
    a1, a2, b1 = (record(n, key, of=owner) for n, key in enumerate([b"a", b"a", b"b"]))
    assert chains.enter([a1, a2, b1]) == [a1, b1]
    assert chains.leave(b1) is None
    assert chains.leave(a1) is a2
    assert chains.leave(a2) is None
    assert chains._chains == {owner: {}}
    chains.close(owner)
    assert chains._chains == {}


def test_keys_are_equal_by_their_bytes():
    chains, owner = Chains("key_hash"), partition()
    first, second = record(0, b"ab", of=owner), record(1, bytes(bytearray(b"ab")), of=owner)
    assert chains.enter([first, second]) == [first]


def test_records_without_a_key_do_not_wait_for_each_other_and_empty_keys_do():
    chains, owner = Chains("key_hash"), partition()
    records = [record(n, key, of=owner) for n, key in enumerate([None, None, b"", b""])]
    assert chains.enter(records) == records[:3]


def test_the_same_key_in_two_topics_is_two_chains():
    chains = Chains("key_hash")
    records = [record(0, of=partition(topic="a")), record(0, of=partition(topic="b"))]
    assert chains.enter(records) == records


def test_in_partition_order_a_partition_is_one_chain():
    chains, one, two = Chains("partition"), partition(1), partition(2)
    records = [record(0, b"a", of=one), record(1, None, of=one), record(0, b"a", of=two)]
    assert chains.enter(records) == [records[0], records[2]]
    assert chains.leave(records[0]) is records[1]


def test_unordered_records_never_wait():
    chains, owner = Chains("unordered"), partition()
    records = [record(n, of=owner) for n in range(3)]
    assert chains.enter(records) == records
    assert chains.leave(records[0]) is None


def test_records_of_a_partition_that_was_taken_away_do_not_start():
    chains, owner = Chains("key_hash"), partition()
    first, second = record(0, of=owner), record(1, of=owner)
    chains.enter([first, second])
    assert chains.close(owner) == 1
    owner.leaving = True
    assert chains.leave(first) is None
    assert chains.enter([record(2, of=owner)]) == []
    assert chains.waiting == 0


def test_what_waits_comes_out_when_it_is_due_soonest_first():
    waiting: DelayQueue[str] = DelayQueue()
    for due, thing in [(3.0, "c"), (1.0, "a"), (1.0, "b"), (9.0, "z")]:
        waiting.push(due, thing)
    assert waiting.next_due == 1.0
    assert waiting.pop_due(3.0) == ["a", "b", "c"]
    assert waiting.remove(lambda thing: thing == "z") == ["z"]
    assert (waiting.next_due, len(waiting)) == (None, 0)
