"""Spans and metrics that were exported, in memory."""

from __future__ import annotations

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from redrive.signals.otel import OpenTelemetry


class Seen:
    """One application's tracing, and what came out of it."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        meters = MeterProvider([self.reader])
        self.tracing = OpenTelemetry(tracer_provider=self.provider, meter_provider=meters)
        self.tracer = self.provider.get_tracer("the application's own")

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Return the spans that ended, in that order; those named *name*, or whose name begins with it."""
        return [
            span for span in self.exporter.get_finished_spans() if f"{span.name} ".startswith(f"{name} " * bool(name))
        ]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span

    def metrics(self) -> dict[str, list]:
        """Return each metric's data points."""
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}

    def all_text(self) -> str:
        """Return everything that left the process."""
        spans = "\n".join(span.to_json() for span in self.spans())
        return f"{spans}\n{self.reader_text()}"

    def reader_text(self) -> str:
        data = self.reader.get_metrics_data()
        return "" if data is None else data.to_json()


def traceparent(span: ReadableSpan) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    ours, theirs = span.get_span_context(), parent.get_span_context()
    return span.parent is not None and (span.parent.span_id, ours.trace_id) == (theirs.span_id, theirs.trace_id)


def links(span: ReadableSpan) -> list[int]:
    """Return the ids of the spans that it is linked to."""
    return [link.context.span_id for link in span.links]
