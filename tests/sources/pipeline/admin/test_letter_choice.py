"""Which letters an operator means."""

from __future__ import annotations

import pytest

from redrive.errors import SourceError
from redrive.sources.pipeline.admin.lanes.letter_choice import EVERY_LETTER, LetterChoice, choice_of
from redrive.sources.pipeline.protos.admin_pb2 import LetterFilter
from redrive.sources.pipeline.protos.document_pb2 import DlqMessage

LETTER = DlqMessage(error_type="TIMEOUT", error_message="Deadline exceeded after 30 s", dlq_reprocess_count=2)
LETTER.failed_at.FromSeconds(1_000)
LETTER.stream.stream_id = "s1"
LETTER.stream.document.doc_id = "d1"


@pytest.mark.parametrize(
    ("choice", "picked"),
    [
        (LetterChoice(), True),
        (LetterChoice(stream_ids=frozenset({"s1", "s2"})), True),
        (LetterChoice(stream_ids=frozenset({"s2"})), False),
        (LetterChoice(doc_ids=frozenset({"d1"})), True),
        (LetterChoice(doc_ids=frozenset({"s1"})), False),
        (LetterChoice(error_types=frozenset({"timeout"})), True),
        (LetterChoice(error_types=frozenset({"UNAVAILABLE"})), False),
        (LetterChoice(error_contains="deadline"), True),
        (LetterChoice(error_contains="refused"), False),
        (LetterChoice(failed_after=1_000.0), True),
        (LetterChoice(failed_after=1_000.5), False),
        (LetterChoice(failed_before=1_000.0), False),
        (LetterChoice(min_reprocess_count=2), True),
        (LetterChoice(min_reprocess_count=3), False),
        (LetterChoice(stream_ids=frozenset({"s1"}), error_types=frozenset({"UNAVAILABLE"})), False),
    ],
)
def test_every_condition_that_is_given_must_hold(choice, picked):
    assert choice.picks(LETTER) is picked


def test_an_act_without_a_filter_is_refused_unless_all_are_meant():
    with pytest.raises(SourceError, match="which letters"):
        choice_of(LetterFilter(), acts=True)
    assert choice_of(LetterFilter(all=True), acts=True) == EVERY_LETTER
    assert choice_of(LetterFilter(), acts=False) == EVERY_LETTER


def test_all_beside_a_filter_is_refused():
    with pytest.raises(SourceError, match="exclude each other"):
        choice_of(LetterFilter(all=True, stream_ids=["s1"]), acts=True)
