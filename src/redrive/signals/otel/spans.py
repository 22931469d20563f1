"""
One span, from its beginning to its end.

Owns that tracing never stops a letter: what a span processor or an exporter raises is logged, a few times, and
dropped. Records no exception and no text of one: both may quote a payload. Knows no letter and no attribute's name.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from redrive.signals.log import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from opentelemetry.context import Context

_W3C = TraceContextTextMapPropagator()  # not the application's own: that may carry baggage, which is anybody's text
_HTTP_ERROR = 400
_LOUD = 3  # complaints; an exporter that always fails must not flood the log


class Safely:
    """Calls OpenTelemetry, and goes on without it if it raises."""

    def __init__(self) -> None:
        self._failures = 0

    def __call__(self, call: Callable[..., Any], *given: Any, **options: Any) -> Any:
        """Return what *call* returns; None if it raises."""
        try:
            return call(*given, **options)
        except Exception as error:  # noqa: BLE001 - exporters are other people's code; they must not stop a letter
            self._failures += 1
            if self._failures <= _LOUD:
                write("warning", "redrive.tracing.failed", {"error": type(error).__name__})
            return None


class OpenSpan:
    """A span that has begun; of a tracer that failed, one that does nothing."""

    def __init__(self, span: trace.Span | None, before: Context, safely: Safely, began: float = 0.0) -> None:
        self._span, self._safely, self.began = span or trace.INVALID_SPAN, safely, began
        self.error_type = ""
        self._context = trace.set_span_in_context(self._span, before) if span is not None else before

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Let all spans that begin in the block be children of this one."""
        token = contexts.attach(self._context)
        try:
            yield
        finally:
            contexts.detach(token)

    def add(self, attributes: Mapping[str, Any]) -> None:
        """Add *attributes*."""
        self._safely(self._span.set_attributes, attributes)

    def note(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Add an event."""
        self._safely(self._span.add_event, name, attributes)

    def fail(self, error_type: str) -> None:
        """Say that it failed, and by which type of error; never with its text."""
        self.error_type = error_type
        self.add({"error.type": error_type})
        self._safely(self._span.set_status, trace.StatusCode.ERROR)

    def answered(self, status: int) -> None:
        """Say what another service answered; HTTP's errors are failures of the one who asked."""
        self.add({"http.response.status_code": status})
        if status >= _HTTP_ERROR:
            self.fail(str(status))

    def end(self) -> None:
        """End it."""
        self._safely(self._span.end)

    @property
    def carrier(self) -> dict[str, str]:
        """Its trace context, for what leaves the process; empty if there is none."""
        return carrier_in_context(self._context)


def carrier_in_context(context: Context | None = None) -> dict[str, str]:
    """Return the trace context of *context*, or of the current one, as text."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, context)
    return carrier


def context_of(carrier: Mapping[str, str], before: Context) -> Context:
    """Return *before* with the span that *carrier* names; *before* itself if it names none."""
    return _W3C.extract(carrier, before) if carrier else before


def links_to(carriers: list[dict[str, str]]) -> list[trace.Link]:
    """Return a link to each span that *carriers* name."""
    empty = contexts.Context()
    spans = (trace.get_current_span(context_of(each, empty)).get_span_context() for each in carriers)
    return [trace.Link(span) for span in spans if span.is_valid]
