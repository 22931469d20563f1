"""Messages as the client hands them over, read in runs."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.kafka.samples import partition

from redrive.sources.kafka.records.messages import key_of, key_text, records_of, runs


def message(offset: int, number: int = 0, *, topic: str = "orders", **parts) -> Message:
    return Message(topic=topic, partition=number, offset=offset, **parts)


def end_of_log(offset: int, number: int = 0) -> Message:
    return message(offset, number, error=KafkaError(KafkaError._PARTITION_EOF))


def places(found):
    return [[(each.topic(), each.partition(), each.offset()) for each in run] for run in found]


def test_nothing_has_no_runs():
    assert list(runs([])) == []


def test_a_run_ends_where_the_partition_changes_and_where_the_topic_does():
    found = runs([message(1), message(2), message(3, 1), message(4, 1, topic="bills"), message(5, 1, topic="bills")])
    assert places(found) == [
        [("orders", 0, 1), ("orders", 0, 2)],
        [("orders", 1, 3)],
        [("bills", 1, 4), ("bills", 1, 5)],
    ]


def test_a_run_ends_where_the_log_starts_again_but_not_at_a_hole():
    assert places(runs([message(7), message(9), message(0), message(1)])) == [
        [("orders", 0, 7), ("orders", 0, 9)],
        [("orders", 0, 0), ("orders", 0, 1)],
    ]


def test_a_message_that_tells_of_an_error_is_alone_between_others_of_its_partition():
    found = list(runs([end_of_log(1), message(1), end_of_log(2), end_of_log(2), message(2)]))
    assert [len(run) for run in found] == [1, 1, 1, 1, 1]
    assert [run[0].error() is None for run in found] == [False, True, False, False, True]


def test_an_error_of_no_partition_is_alone_too():
    nowhere = Message(error=KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert [len(run) for run in runs([message(1), nowhere, nowhere, message(2), message(3)])] == [1, 1, 1, 2]


KEYS = [b"", b"a", b"\xff", rb"\xff", b"\\", b"\\\\", b"\0", rb"\x00", "kö".encode(), b"\xed\xa0\x80", b"a\\\xffb"]


def test_no_two_keys_have_the_same_text_and_each_is_read_back_exactly():
    texts = [key_text(key) for key in KEYS]
    assert len(set(texts)) == len(KEYS)
    assert [key_of(text) for text in texts] == KEYS


@given(st.binary())
def test_every_key_is_read_back_exactly(key):
    text = key_text(key)
    assert key_of(text) == key
    assert "\0" not in text


def test_a_backslash_that_begins_no_escape_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match="write it twice"):
        key_of(r"C:\orders")


def test_a_record_has_what_its_message_has_and_the_size_of_its_bytes():
    owner = partition(3)
    whole = message(8, 3, key=b"k", value=b"four", headers=[("name", b"xy"), ("none", None)], timestamp=(1, 99))
    bare = message(9, 3, timestamp=(0, 0))
    first, second = records_of([whole, bare], owner)
    assert (first.assignment, first.offset, first.key, first.value) == (owner, 8, b"k", b"four")
    assert (list(first.headers), first.timestamp, first.timestamp_type) == ([("name", b"xy"), ("none", None)], 99, 1)
    assert (first.size, second.size) == (1 + 4 + 4 + 2 + 4, 0)
    assert (second.key, second.value, list(second.headers)) == (None, None, [])
