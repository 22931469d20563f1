"""
Facts as log lines.

Owns every word that redrive logs: one event name and one level per fact. Facts carry no payload, so none can get here.
Routine facts are `debug`: a busy worker announces them all the time, although in batches. If the application has not
configured structlog, the lines go to the standard library's logger `redrive`, and nothing goes to standard output.
Knows no store and no letter.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from redrive.core import facts

if TYPE_CHECKING:
    from redrive.core.facts import Fact

_STANDARD = logging.getLogger("redrive")
_NUMBERS = {name.lower(): number for name, number in logging.getLevelNamesMapping().items()}

LEVELS: dict[type, str] = {
    facts.Enqueued: "debug",
    facts.Delivered: "debug",
    facts.GivenBack: "debug",
    facts.Retried: "info",
    facts.Died: "error",
    facts.ClaimLost: "warning",
    facts.Rescued: "warning",
    facts.BreakerOpened: "warning",
    facts.BreakerClosed: "info",
    facts.QueuePaused: "info",
    facts.QueueResumed: "info",
    facts.Replayed: "info",
    facts.Archived: "info",
    facts.Restored: "info",
    facts.Purged: "info",
    facts.Edited: "info",
    facts.WorkerStarted: "info",
    facts.WorkerStopped: "info",
    facts.Abandoned: "warning",
    facts.Orphaned: "warning",
    facts.BackoffUnknown: "warning",
    facts.TaskMoved: "debug",
    facts.Faulted: "error",
    facts.StoreAway: "error",
    facts.StoreBack: "info",
}


def log_facts(fact: Fact) -> None:
    """Write one line about *fact*, unless the log filters its level."""
    with contextlib.suppress(Exception):  # see `write`
        logger, level = _logger(), LEVELS[type(fact)]
        if _takes(logger, level):
            _write(logger, level, fact.name, _fields(fact))


def _fields(fact: Fact) -> dict[str, Any]:
    fields = msgspec.structs.asdict(fact)
    if isinstance(fact, facts.Died):
        fields |= fact.event  # a search by the names of the outbox's columns finds the line
    if isinstance(fact, facts.GivenBack):
        fields["formerly"] = fact.formerly
    return fields


def write(level: str, event: str, fields: dict[str, Any]) -> None:
    """Write one line about *event* to the application's log; a log that cannot be written stops no letter."""
    with contextlib.suppress(Exception):  # a closed stream, a full disk: there is nowhere else to report it
        logger = _logger()
        if _takes(logger, level):
            _write(logger, level, event, fields)


def _logger() -> Any:
    """Return structlog's logger if the application configured it, else the standard library's."""
    return structlog.get_logger("redrive").bind() if structlog.is_configured() else _STANDARD


def _takes(logger: Any, level: str) -> bool:
    """Whether *logger* writes lines of *level*; a line that it filters should cost nothing."""
    name = "isEnabledFor" if logger is _STANDARD else "is_enabled_for"
    enabled = getattr(logger, name, None)  # a logger of the application's own may have no such method
    return enabled is None or bool(enabled(_NUMBERS[level]))


def _write(logger: Any, level: str, event: str, fields: dict[str, Any]) -> None:
    trace = _safe_lines(fields.pop("traceback", ""))
    if logger is _STANDARD:
        text = " ".join([f"{name}={_plain(value)!r}" for name, value in fields.items()])
        logger.log(_NUMBERS[level], "%s %s%s", event, text, f"\n{trace}" if trace else "")
        return
    safe = {name: _safe(value) for name, value in fields.items()}
    safe |= {"exception": trace} if trace else {}  # structlog formats a traceback under this name
    getattr(logger, level)(event, **safe)


def _plain(value: Any) -> Any:
    """Return *value*, an enum as its text and a tuple as a list; `repr` escapes what a terminal would obey."""
    if isinstance(value, str):
        return str(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _safe_lines(text: str) -> str:
    """Return *text* with each of its lines safe for a terminal."""
    if text.replace("\n", "").isprintable():
        return text
    return "\n".join(_safe(line) for line in text.splitlines())


def _safe(value: Any) -> Any:
    """Return *value* safe for a terminal: other people choose kinds, queues and error texts."""
    if isinstance(value, str):
        text = str(value)
        return text if text.isprintable() else ascii(text)[1:-1]
    return [_safe(each) for each in value] if isinstance(value, tuple) else value


def logs_routine() -> bool:
    """Whether the log takes facts about every letter; the app asks once, because the check costs time."""
    logger = _logger()
    return (logger is _STANDARD or hasattr(logger, "is_enabled_for")) and _takes(logger, "debug")


def configure(level: str, form: str) -> None:
    """Configure the log of our own processes on standard error; an application that embeds redrive keeps its own."""
    console = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())  # a file gets no escapes
    renderer = structlog.processors.JSONRenderer() if form == "json" else console
    marks: list[Any] = [structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso", utc=True)]
    structlog.configure(
        processors=[*marks, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    if not _STANDARD.hasHandlers():
        _show_standard(level, marks, renderer)


def _show_standard(level: str, marks: list[Any], renderer: Any) -> None:
    """Format lines of the standard library's logger, such as the Kafka consumer's, like all other lines."""
    form = structlog.stdlib.ProcessorFormatter
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(form(foreign_pre_chain=marks, processors=[form.remove_processors_meta, _printable, renderer]))
    _STANDARD.addHandler(handler)
    _STANDARD.setLevel(level.upper())


def _printable(_logger: Any, _method: str, fields: Any) -> Any:
    return {name: _safe(value) for name, value in fields.items()}
