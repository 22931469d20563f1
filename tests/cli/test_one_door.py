"""A command opens the store once, reads the settings once, and announces what it did."""

from __future__ import annotations

import pytest

from redrive import settings, wiring


@pytest.fixture
def counts(monkeypatch):
    """How often the store was opened and the settings were read, by the real functions."""
    seen = {"opened": 0, "read": 0}
    open_store, load = wiring.open_store, settings.load

    def opening(*given, **named):
        seen["opened"] += 1
        return open_store(*given, **named)

    def reading(*given, **named):
        seen["read"] += 1
        return load(*given, **named)

    monkeypatch.setattr(wiring, "open_store", opening)
    monkeypatch.setattr(settings, "load", reading)
    return seen


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("ls",), None),
        (("stats",), None),
        (("groups",), None),
        (("groups", "--by", "origin"), None),
        (("audit",), None),
        (("top", "--once"), None),
        (("queues", "ls"), None),
        (("queues", "pause", "default"), None),
        (("replay", "-q", "kind:order.created"), "y\n"),
        (("replay", "-q", "kind:order.created", "--yes", "--wait", "--wait-seconds", "0"), None),
        (("archive", "-q", "kind:mail.sent", "--yes", "--reason", "spam"), None),
        (("purge", "-q", "kind:order.created", "--yes", "--confirm", "0"), None),
    ],
)
def test_a_command_opens_the_store_once_and_reads_the_settings_once(redrive, failures, counts, arguments, answer):
    redrive(*arguments, answer=answer, code=1 if "--wait" in arguments else 0)
    assert counts == {"opened": 1, "read": 1}


def test_an_edit_opens_the_store_once(redrive, failures, counts):
    (order, *_), _ = failures
    redrive("edit", order, "--payload", '{"order": 18}', "--yes")
    assert counts == {"opened": 1, "read": 1}


def test_an_act_is_logged_by_the_command_if_a_log_level_is_set(redrive, failures, monkeypatch, capfd):
    orders, _ = failures
    redrive("replay", orders[0])
    assert "redrive.letters.replayed" not in capfd.readouterr().err

    monkeypatch.setenv("REDRIVE_LOG_LEVEL", "info")
    told = redrive("replay", "-q", "kind:order.created", "--yes", "--reason", "fixed", "--by", "ana").stderr
    told += capfd.readouterr().err
    assert told.count("redrive.letters.replayed") == 1
    assert "count=2" in told
    assert "ana" in told
    assert "fixed" in told
