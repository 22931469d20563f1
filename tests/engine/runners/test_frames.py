from __future__ import annotations

import pytest

from redrive.engine.runners.processes.frames import BadFrame, Report, Splitter, pack


def test_frames_are_cut_from_any_pieces():
    stream = b"".join(pack(Report(number)) for number in range(5))
    whole = [*Splitter(100).feed(stream)]
    splitter = Splitter(100)
    pieces = [frame for i in range(len(stream)) for frame in splitter.feed(stream[i : i + 1])]

    assert whole == pieces
    assert len(whole) == 5


def test_a_frame_that_is_too_long_is_refused_before_it_is_read():
    with pytest.raises(BadFrame):
        list(Splitter(100).feed(b"\x00\x00\x01\x00"))
