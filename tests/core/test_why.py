"""Reasons: written as text, read back as members."""

from __future__ import annotations

import pytest

from redrive.core.why import Why, why_of

PLAIN = [why for why in Why if "{}" not in why.value]
FORMS = [why for why in Why if "{}" in why.value]
KEPT = {  # letters in users' stores carry these texts
    "enqueued", "collected", "succeeded", "backing off", "asked to wait", "terminal", "exhausted", "out of time",
    "redrive_fault", "worker lost", "worker_crashed", "interrupted", "waits to run alone", "its queue is paused",
    "shutdown", "stopped", "too many threads hang in handlers that ran out of time", "replayed",
}  # fmt: skip


@pytest.mark.parametrize("why", PLAIN)
def test_a_plain_reason_reads_back_as_itself(why):
    assert why_of(str(why)) is why


@pytest.mark.parametrize("name", ["ana", "'bank'", "{}", "a by b", "worker 3 died"])
@pytest.mark.parametrize("why", FORMS)
def test_a_reason_with_a_name_reads_back_as_its_form(why, name):
    text = why.naming(name)
    assert name in text
    assert why_of(text) is why


def test_no_kept_text_has_changed():
    assert {why.value for why in Why} >= KEPT
    assert why_of("held by breaker 'bank'") is Why.HELD_BY_BREAKER
    assert why_of("archived by ana") is Why.ARCHIVED_BY
    assert why_of("restored by ana") is Why.RESTORED_BY
    assert why_of("its process exited with code 3") is Why.PROCESS_ENDED
    assert why_of("worker w1 died, or hung until its lease ended") is Why.WORKER_DIED
    assert why_of("no worker process can start: it dies") is Why.NO_WORKER_PROCESS
    assert why_of("released") is Why.GIVEN_BACK


@pytest.mark.parametrize("text", [None, "", "a reason of tomorrow", "archived by ", "worker lost again", "exhausted "])
def test_an_unknown_text_is_no_reason(text):
    assert why_of(text) is None
