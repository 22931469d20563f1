"""
What the user's own observability object is told.

Owns the sentences and their attributes: ids and words, never a task, an error's text or metadata. Whatever the object
raises changes nothing. Knows no store.
"""

from __future__ import annotations

from typing import Any, Protocol

from redrive.signals.log import write


class ObservabilityManager(Protocol):
    """Any object with these two methods."""

    def log_info(self, message: str, *, attributes: dict[str, Any]) -> object:
        """Take a sentence about something that went as it should."""

    def log_error(self, message: str, *, attributes: dict[str, Any]) -> object:
        """Take a sentence about a failure."""


class Teller:
    """Tells *manager*, if there is one."""

    def __init__(self, manager: ObservabilityManager | None) -> None:
        self._manager, self._has_warned = manager, False

    def info(self, message: str, **attributes: Any) -> None:
        """Tell of something that went as it should."""
        self._tell("log_info", message, attributes)

    def error(self, message: str, **attributes: Any) -> None:
        """Tell of a failure."""
        self._tell("log_error", message, attributes)

    def _tell(self, method: str, message: str, attributes: dict[str, Any]) -> None:
        if self._manager is None:
            return
        try:
            getattr(self._manager, method)(message, attributes=attributes)
        except Exception as error:  # noqa: BLE001 - it is the user's, and a task must not suffer from it
            if not self._has_warned:
                self._has_warned = True
                told = {"error_type": type(error).__name__, "told": f"the observability_manager's {method} raised"}
                write("warning", "redrive.workflow.observability", told)
