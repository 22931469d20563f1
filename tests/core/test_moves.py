"""The table of the state machine, and what operators may do."""

from __future__ import annotations

import pytest

from redrive.core.letter import Status
from redrive.core.moves import MOVES, VERBS, check_verb, diagram
from redrive.errors import MoveRefused


def test_nothing_leaves_delivered():
    assert [pair for pair in MOVES if pair[0] is Status.DELIVERED] == []


def test_only_a_claim_puts_a_letter_in_flight():
    assert [pair for pair in MOVES if pair[1] is Status.IN_FLIGHT] == [(Status.PENDING, Status.IN_FLIGHT)]


def test_the_picture_shows_every_move():
    picture = diagram()
    missing = [pair for pair, word in MOVES.items() if f"    {pair[0]} --> {pair[1]}: {word}" not in picture]
    assert missing == []
    assert picture.startswith("stateDiagram-v2\n")


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_allowed_from_one_status_only(verb, status):
    if VERBS[verb] is status:
        check_verb(verb, "a41", status)
        return
    with pytest.raises(MoveRefused, match=f"cannot {verb} letter 'a41': it is {status}"):
        check_verb(verb, "a41", status)


def test_an_unknown_verb_is_refused_with_those_there_are():
    with pytest.raises(MoveRefused, match="cannot explode letters: operators can replay, archive"):
        check_verb("explode", "a41", Status.FAILED)
