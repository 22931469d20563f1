"""The five variables of a hand-made inbox, and `[inbox]`: what reads, what is refused, and in which words."""

from __future__ import annotations

import pytest

from redrive.errors import SettingsError
from redrive.settings import load
from redrive.sources.webhook.config import InboxConfig
from redrive.sources.webhook.environment import VARIABLES, read_inbox


def problems(variables, table=()):
    with pytest.raises(SettingsError) as refused:
        read_inbox(variables, dict(table))
    return refused.value.problems


def test_the_defaults_are_those_of_the_document():
    config = read_inbox({}, {})
    assert (config.max_attempts, config.retry_base_delay, config.retry_max_delay) == (5, 5.0, 300.0)
    assert (config.queue_maxsize, config.retention_days, config.retention_failed_days) == (10_000, 30.0, None)


def test_the_waits_are_10_20_40_and_80_seconds():
    policy = InboxConfig().policy
    assert [policy.delay(attempt, 0.99) for attempt in (1, 2, 3, 4)] == [10, 20, 40, 80]
    assert InboxConfig(max_attempts=9).policy.delay(8, 0.5) == 300


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 5.0), ("5.0", 5.0), ("5s", 5.0), ("5m", 300.0), (" 0.5s ", 0.5), ("0", 0.0)]
)
def test_spans_read_as_people_write_them(text, seconds):
    assert read_inbox({"RETRY_BASE_DELAY": text}, {}).retry_base_delay == seconds


@pytest.mark.parametrize("text", ["", "5h", "5 seconds", "-5", "1e3", "inf", "nan", "5ms", "five", "5s5", "9" * 30])
def test_any_other_span_is_refused_in_words(text):
    (problem,) = problems({"RETRY_MAX_DELAY": text})
    assert problem.startswith("RETRY_MAX_DELAY is ")
    assert problem.endswith("it must be a number of seconds such as 5, 5.0 or 5s, or of minutes such as 5m")


@pytest.mark.parametrize("text", ["0", "-1", "5.0", "many", "", "99999999999"])
def test_what_is_no_count_is_refused(text):
    assert "a whole number from 1 up" in problems({"MAX_ATTEMPTS": text})[0]


def test_every_problem_is_reported_at_once():
    found = problems(dict.fromkeys(VARIABLES, "x"), {"max_bodi": 1})
    assert len(found) == 6
    assert "max_bodi in [inbox] is no setting of the inbox; did you mean max_body?" in found


def test_the_environment_wins_over_the_file(monkeypatch, tmp_path):
    (tmp_path / "redrive.toml").write_text("[inbox]\nmax_attempts = 3\nretry_base_delay = '1m'\n")
    monkeypatch.setenv("MAX_ATTEMPTS", "7")
    config = load(tmp_path / "redrive.toml").inbox_config
    assert (config.max_attempts, config.retry_base_delay) == (7, 60.0)


def test_other_programs_may_have_variables_of_these_names(monkeypatch):
    monkeypatch.setenv("MAX_ATTEMPTS", "unlimited")
    load()  # an application without an inbox does not care


def test_a_text_is_no_table(monkeypatch):
    monkeypatch.setenv("REDRIVE_INBOX", "stripe")
    with pytest.raises(SettingsError, match="it must be a table in redrive"):
        load()
