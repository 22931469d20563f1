"""Facts as log lines: one level each, safe on a terminal, and never on the application's standard output."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from io import StringIO

import pytest
import structlog

from redrive.core.facts import FACTS, Delivered, Died, GivenBack, WorkerStarted
from redrive.core.letter import Category
from redrive.signals.hub import Hub
from redrive.signals.log import LEVELS, configure, log_facts, logs_routine, write


def a_death(kind: str = "order.created") -> Died:
    return Died(
        id="a1", queue="default", kind=kind, attempts=5, error_type="OSError", category=Category.NETWORK,
        rule="errno 111", fingerprint="f-v1", why="exhausted",
    )  # fmt: skip


@pytest.fixture
def _unconfigured():
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def test_every_fact_has_a_level():
    assert set(LEVELS) == set(FACTS)


@pytest.mark.usefixtures("_unconfigured")
def test_a_death_is_found_by_the_names_that_the_outbox_has_in_sql(capsys):
    configure("info", "json")
    log_facts(a_death())
    line = json.loads(capsys.readouterr().err)
    told = {name: line[name] for name in ("event_id", "event_type", "source", "target", "handler_name")}
    assert told == {
        "event_id": "a1", "event_type": "order.created", "source": None, "target": None,
        "handler_name": "order.created",
    }  # fmt: skip
    assert (line["last_error"], line["attempts"]) == ("", 5)


@pytest.mark.usefixtures("_unconfigured")
def test_letters_given_back_are_found_under_their_old_name_for_one_version(capsys):
    configure("debug", "json")
    log_facts(GivenBack(queue="default", kind="order.created", why="shutdown"))
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["formerly"]) == ("redrive.letters.given_back", "redrive.letters.released")


@pytest.mark.usefixtures("_unconfigured")
def test_an_application_without_structlog_gets_lines_in_the_standard_log_and_none_on_its_output(caplog, capsys):
    with caplog.at_level(logging.INFO, "redrive"):
        log_facts(a_death())
        log_facts(Delivered(queue="default", kind="order.created"))
    [record] = caplog.records
    assert (record.name, record.levelname) == ("redrive", "ERROR")
    assert record.message.startswith("redrive.letter.died id='a1' queue='default' kind='order.created' attempts=5")
    assert "category='network'" in record.message
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("_unconfigured")
@pytest.mark.parametrize(("level", "wanted"), [(logging.DEBUG, True), (logging.INFO, False)])
def test_routine_facts_are_wanted_only_by_who_would_see_them(caplog, level, wanted):
    with caplog.at_level(level, "redrive"):
        assert logs_routine() is wanted


@pytest.mark.usefixtures("_unconfigured")
@pytest.mark.parametrize(("level", "wanted"), [("debug", True), ("info", False)])
def test_routine_facts_of_our_own_processes_are_wanted_at_debug(level, wanted):
    configure(level, "json")
    assert logs_routine() is wanted


@pytest.mark.usefixtures("_unconfigured")
def test_json_lines_go_to_standard_error(capsys):
    configure("info", "json")
    log_facts(a_death())
    out, err = capsys.readouterr()
    line = json.loads(err)
    assert out == ""
    assert (line["event"], line["level"], line["category"]) == ("redrive.letter.died", "error", "network")
    assert "timestamp" in line


@pytest.mark.usefixtures("_unconfigured")
@pytest.mark.parametrize("form", ["console", "json"])
@pytest.mark.parametrize("hostile", ["\x1b[2J", "two\nlines", "\ud800", "\x00"])
def test_a_hostile_name_stays_on_its_line_and_does_nothing_to_the_terminal(capsys, form, hostile):
    configure("info", form)
    log_facts(a_death(kind=hostile))
    _, err = capsys.readouterr()
    assert hostile not in err
    assert len(err.splitlines()) == 1


@contextlib.contextmanager
def a_process_of_its_own(*handlers: logging.Handler):
    """Let the logger of redrive be as in a process where nobody else, such as pytest, listens."""
    logger = logging.getLogger("redrive")
    before, logger.handlers, logger.propagate = logger.handlers, list(handlers), False
    try:
        yield logger
    finally:
        logger.handlers, logger.propagate = before, True
        logger.setLevel(logging.NOTSET)


@pytest.mark.usefixtures("_unconfigured")
def test_lines_of_the_standard_log_look_like_the_others_in_our_own_processes(capsys):
    log = logging.getLogger("redrive.kafka")
    with a_process_of_its_own():
        configure("info", "json")
        log.info("%r failed at attempt %d: %s", "orders[0]@17", 1, "two\nlines \x1b[2J")
        log.debug("nobody wants to know")
    [line] = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (line["event"], line["level"]) == ("'orders[0]@17' failed at attempt 1: two\\nlines \\x1b[2J", "info")
    assert "timestamp" in line


@pytest.mark.usefixtures("_unconfigured")
@pytest.mark.parametrize("hostile", ["\x1b[2J", "two\nlines", "\ud800", "\x00"])
def test_a_hostile_line_of_the_standard_log_does_nothing_to_the_terminal(capsys, hostile):
    with a_process_of_its_own():
        configure("info", "console")
        logging.getLogger("redrive.kafka").warning("it says %s", hostile)
    err = capsys.readouterr().err
    assert hostile not in err
    assert len(err.splitlines()) == 1


@pytest.mark.usefixtures("_unconfigured")
def test_an_application_that_set_up_the_standard_log_keeps_it():
    own = logging.NullHandler()
    with a_process_of_its_own(own) as logger:
        configure("info", "json")
        assert logger.handlers == [own]


def test_a_log_that_cannot_be_written_stops_nobody(monkeypatch):
    stream = StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure("info", "json")
    stream.close()
    write("info", "redrive.worker.started", {})


def test_a_listener_that_fails_beside_a_log_that_cannot_be_written_stops_nobody(monkeypatch):
    def broken(_fact):
        raise RuntimeError

    stream = StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure("info", "json")
    stream.close()
    hub = Hub()
    hub.listen(broken)
    hub(WorkerStarted(worker="w"))
