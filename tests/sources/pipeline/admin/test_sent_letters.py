"""The ledger of a partition: what was sent away is not sent again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.sources.pipeline.admin.lanes.sent_letters import SentLetters


def again(sent: SentLetters, low: int, high: int) -> SentLetters:
    note = sent.note
    return SentLetters(low, high, offset=note.offset, text=note.text)


@given(st.sets(st.integers(0, 300)), st.integers(0, 50))
def test_a_commit_keeps_exactly_what_was_sent(offsets, low):
    sent = SentLetters(low, 301)
    sent.add(offsets)
    read = again(sent, low, 301)
    assert [read.has(each) for each in range(low, 301)] == [each in offsets for each in range(low, 301)]
    assert read.count(301) == len([each for each in offsets if each >= low])


def test_letters_that_retention_removed_do_not_count_as_waiting():
    assert SentLetters(100, 250).count(250) == 0
    assert SentLetters(100, 250, offset=180, text="").count(250) == 80


def test_a_topic_that_was_made_again_starts_empty():
    sent = SentLetters(0, 1_000)
    sent.add(range(900))
    assert not again(sent, 0, 10).has(3)


def test_what_two_operators_sent_is_sent():
    mine, other = SentLetters(0, 10), SentLetters(0, 10)
    mine.add([1, 2])
    other.add([5])
    mine.merge(other)
    assert [each for each in range(10) if mine.has(each)] == [1, 2, 5]


def test_a_ledger_that_does_not_fit_says_so_and_keeps_what_it_can():
    sent = SentLetters(0, 10_000_000)
    sent.add(range(1, 10_000_000, 997))
    note = sent.note
    assert not note.is_whole
    read = SentLetters(0, 10_000_000, offset=note.offset, text=note.text)
    assert read.has(1)
    assert not read.has(2)
