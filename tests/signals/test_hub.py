"""Listeners hear every fact, and none of them can stop a letter or another listener."""

from __future__ import annotations

import logging

import pytest
import structlog

from redrive.core.facts import BreakerClosed, Delivered
from redrive.signals.hub import Hub

FACT = BreakerClosed(breaker="bank")


@pytest.fixture(autouse=True)
def _unconfigured():
    structlog.reset_defaults()


def broken(_fact) -> None:
    raise RuntimeError("secret")


def test_a_broken_listener_stops_nobody_and_is_complained_about_three_times(caplog, capsys):
    hub, heard = Hub(), []
    hub.listen(broken)
    hub.listen(heard.append)
    with caplog.at_level(logging.WARNING, "redrive"):
        for _ in range(10):
            hub(FACT)
    assert heard == [FACT] * 10
    assert len(caplog.records) == 3
    assert "redrive.listener.failed" in caplog.text
    assert "secret" not in caplog.text
    assert capsys.readouterr() == ("", "")


def test_a_listener_is_called_once_however_often_it_listens_and_not_after_it_left():
    hub, heard = Hub(), []
    listener = heard.append
    hub.listen(listener)
    hub.listen(listener)
    hub(FACT)
    hub.unlisten(listener)
    hub(FACT)
    assert heard == [FACT]


def test_facts_of_every_letter_go_only_to_those_who_want_them():
    hub, routine, rare = Hub(), [], []
    hub.listen(rare.append, routine=False)
    assert not hub.wants_routine
    hub.listen(routine.append)
    assert hub.wants_routine
    for fact in (FACT, Delivered(queue="q", kind="k")):
        hub(fact)
    assert rare == [FACT]
    assert routine == [FACT, Delivered(queue="q", kind="k")]
