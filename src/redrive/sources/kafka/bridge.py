"""
The bridge from the control thread to the event loop.

Owns carrying the poller's calls to the work manager. Each call returns at once; an error in one stops the consumer,
because the event loop would only log it. Knows neither offsets nor retries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from redrive.sources.kafka.control.poller import Completions
    from redrive.sources.kafka.execution.work_manager import WorkManager
    from redrive.sources.kafka.records.completion import CompletionEvent
    from redrive.sources.kafka.records.record import Assignment, Record


class LoopBridge:
    """Runs calls on *work* in *loop*; *broke* gets what they raise."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: WorkManager,
        completions: Completions,
        broke: Callable[[BaseException], None],
    ) -> None:
        self._post, self._work, self._completions, self._broke = loop.call_soon_threadsafe, work, completions, broke

    @property
    def retries(self) -> int:
        """Tries that failed and were, or will be, repeated."""
        return self._work.engine.retries

    def take(self, records: list[Record]) -> None:
        """Schedule *records*."""
        self._post(self._do, self._work.take, records)

    def take_isolated(self, records: list[Record]) -> None:
        """Schedule *records*, which may kill the process that runs them, isolated from others."""
        self._post(self._do, self._work.take_isolated, records)

    def give_up(self, event: CompletionEvent) -> None:
        """End a record with *event*, unless it has ended."""
        self._post(self._do, self._work.give_up, event)

    def revoke(self, assignment: Assignment) -> None:
        """Start nothing more of *assignment*; its count of dropped records comes back through the completions."""
        self._post(self._do, self._revoke, assignment)

    def _do(self, act: Callable[[Any], None], what: object) -> None:
        try:
            act(what)
        except Exception as error:  # noqa: BLE001 - the event loop called this and would only log it
            self._broke(error)

    def _revoke(self, assignment: Assignment) -> None:
        self._completions.put((assignment, self._work.revoke(assignment)))
