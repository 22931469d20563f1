"""How far replays have come: one offset for each limit, in the metadata of one commit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.sources.kafka.replay.progress import Progress

LETTERS = st.lists(st.integers(0, 5), max_size=30)  # how often each was replayed, by offset
RUNS = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 30)), max_size=8)  # the limit, and where it is cut short


@given(LETTERS, RUNS)
def test_every_letter_goes_once_as_soon_as_a_replay_may_send_it(letters, runs):
    reached, sent = Progress(-1001), []
    for limit, cut in [*runs, (6, 30)]:
        for offset in range(reached.start(limit), min(cut, len(letters))):
            if letters[offset] < limit and not reached.has(offset, letters[offset]):
                sent.append(offset)
            reached.moved(limit, offset + 1)
            reached = Progress(reached.furthest, reached.note)  # as the next command reads it
    assert sorted(sent) == list(range(len(letters)))


@given(LETTERS, st.integers(1, 6), st.integers(0, 30))
def test_what_is_left_is_what_was_replayed_too_often(letters, limit, cut):
    reached = Progress()
    reached.moved(limit, cut)
    gone = [offset for offset, replays in enumerate(letters) if reached.has(offset, replays)]
    assert gone == [offset for offset, replays in enumerate(letters) if offset < cut and replays < limit]


@pytest.mark.parametrize("note", [None, "", "b1.", "{}", '{"x":1}', '{"3":99}', '{"3":7,"1":-1}', "[7]", '{"3":7}\0'])
def test_a_note_that_cannot_be_read_means_the_usual_limit(note):
    reached = Progress(7, note)
    assert (reached.furthest, reached.start(3), reached.start(4)) == (7, 7, 0)
