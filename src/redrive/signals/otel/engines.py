"""
Engines whose runs are traced.

Owns the span of a run: it begins when the handler is called (in a child process: when the engine takes the item), is
current while the handler runs, and ends with the outcome that the engine reports, also for a handler that timed out.
Knows no letter: its caller says what a span of an item says.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from redrive.core.decide import Failed, Lost

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from redrive.core.decide import Interrupted, Outcome
    from redrive.core.letter import Letter
    from redrive.signals.otel.spans import OpenSpan

    Begin = Callable[[Any], OpenSpan]
    End = Callable[[Any, OpenSpan], None]
    OnOutcome = Callable[[Any, Outcome], None]


class Runs:
    """The runs under way, by the item that each runs."""

    def __init__(self, begin: Begin, end: End) -> None:
        self._begin, self._end = begin, end
        # By identity: the engine holds the item until its outcome is reported.
        self._open: dict[int, tuple[Any, OpenSpan]] = {}

    def begin(self, item: Any, subject: Any = None) -> OpenSpan:
        """Begin the span of a run of *item*; it speaks of *subject*, if that is not the item itself."""
        about = item if subject is None else subject
        span = self._begin(about)
        self._open[id(item)] = about, span
        return span

    def end(self, item: Any, outcome: Outcome) -> None:
        """End the span of *item*, if it began."""
        about, span = self._open.pop(id(item), (None, None))
        if span is not None:
            tell(span, outcome)
            self._end(about, span)

    def around(self, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return *call*, inside a span; what it returns may have to be awaited."""

        def traced(item: Any) -> Any:
            span = self.begin(item)
            with span.current():
                result = call(item)
            return _awaited(result, span) if asyncio.iscoroutine(result) else result

        return traced


async def _awaited(result: Coroutine[Any, Any, Any], span: OpenSpan) -> Any:
    with span.current():
        return await result


def tell(span: OpenSpan, outcome: Outcome) -> None:
    """Say how a run ended: its outcome, and category and type of a failure; never its text."""
    span.add({"redrive.outcome": type(outcome).__name__.lower()})
    if isinstance(outcome, Failed):
        span.add({"redrive.category": str(outcome.failure.category)})
        span.fail(outcome.failure.error_type)
    elif isinstance(outcome, Lost):
        span.fail("lost")


class TracedEngine:
    """An engine that ends the span of each item."""

    def __init__(self, inner: Any, runs: Runs) -> None:
        self._inner, self._runs = inner, runs

    def start(self, handler: Any, item: Any, ticket: object, done: OnOutcome) -> None:
        """Run *item*; see `Engine.start`."""
        self._inner.start(handler, item, (item, ticket, done), self._done)

    def _done(self, ticket: Any, outcome: Outcome) -> None:
        item, given, done = ticket
        self._runs.end(item, outcome)
        done(given, outcome)

    def __getattr__(self, name: str) -> Any:
        """Give what the engine gives."""
        return getattr(self._inner, name)


class TracedProcesses(TracedEngine):
    """
    The same for an engine that runs letters in child processes: it also begins the span, which the letter takes along.

    *subject* says what a span speaks of, by letter and ticket; the letter itself if it is not given.
    """

    def __init__(self, inner: Any, runs: Runs, subject: Callable[[Letter, Any], Any] | None = None) -> None:
        super().__init__(inner, runs)
        self._subject = subject

    def start(self, handler: Any, item: Letter, ticket: object, done: OnOutcome) -> None:
        """Run *item*; see `Engine.start`."""
        span = self._runs.begin(item, None if self._subject is None else self._subject(item, ticket))
        sent = msgspec.structs.replace(item, metadata={**item.metadata, **span.carrier})
        self._inner.start(handler, sent, (item, ticket, done), self._done)


class TracedThreads(TracedEngine):
    """The same for an engine that takes several items at once; see `HandsOver`."""

    def share(self, handler: Any) -> int:
        """Return how many items may be started together."""
        return int(self._inner.share(handler))

    def start_many(self, handler: Any, items: Sequence[tuple[Any, object]], done: OnOutcome) -> None:
        """Run *items* one after the other."""
        traced = [(item, (item, ticket, done)) for item, ticket in items]
        self._inner.start_many(handler, traced, self._done)

    def recall_late(self, before: float, why: Interrupted) -> None:
        """Give back what has not begun."""
        self._inner.recall_late(before, why)

    @property
    def holds(self) -> bool:
        """Whether items have not begun."""
        return bool(self._inner.holds)
