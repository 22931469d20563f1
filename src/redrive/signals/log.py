"""
Facts as log lines.

Owns every word that redrive logs: one event name and one level per fact. Payloads are not
in facts, so they cannot get here. Routine facts are `debug`: at full speed they come in
batches, but still all the time.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import msgspec
import structlog

from redrive.core import facts

if TYPE_CHECKING:
    from redrive.core.facts import Fact

LEVELS: dict[type, str] = {
    facts.Enqueued: "debug",
    facts.Delivered: "debug",
    facts.Released: "debug",
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
    facts.Orphaned: "warning",
}


def log_facts(fact: Fact) -> None:
    """Write one line about *fact*."""
    logger = structlog.get_logger("redrive")
    getattr(logger, LEVELS[type(fact)])(fact.name, **msgspec.structs.asdict(fact))


def configure(level: str, form: str) -> None:
    """Set up structlog for our own processes; applications that embed redrive keep their own set-up."""
    renderer = structlog.processors.JSONRenderer() if form == "json" else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
