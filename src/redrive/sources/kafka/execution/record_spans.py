"""
Spans of records.

Owns what the span of a try says about its records, and which trace it belongs to: that which the record's producer
wrote into its headers, or, for a batch and for a replayed record, one of its own with a link. Never a key, a value or
another header. Knows no Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.trace import SpanKind

from redrive.core.trace_context import carrier_in
from redrive.sources.kafka.dead_letters.headers import sent_back, split

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.signals.otel import OpenTelemetry
    from redrive.signals.otel.spans import OpenSpan
    from redrive.sources.kafka.records.record import Record


class RecordSpans:
    """The spans of the tries of one consumer."""

    def __init__(self, tracing: OpenTelemetry, group: str, records_of: Callable[[Any], list[Record]]) -> None:
        self._tracing, self._group, self._records_of = tracing, group, records_of

    def begin(self, item: Any) -> OpenSpan:
        """Begin the span of a try of *item*, which stands for one or several records."""
        records = self._records_of(item)
        first = records[0]
        about = {**self._labels(first), "messaging.destination.partition.id": str(first.partition)}
        if len(records) == 1:
            about |= {"messaging.kafka.offset": first.offset, "redrive.attempt": first.attempts}
        else:
            about["messaging.batch.message_count"] = len(records)
        carriers = [carrier_in(record.headers) for record in records]
        is_child = len(records) == 1 and not _is_replayed(first)
        span = self._tracing.begin(
            f"handle {first.topic}",
            SpanKind.CONSUMER,
            about,
            parent=carriers[0] if is_child else {},
            links=[] if is_child else carriers,
        )
        for record in records:
            record.trace = span.carrier
        return span

    def end(self, item: Any, span: OpenSpan) -> None:
        """End it."""
        span.end()
        self._tracing.time("messaging.process.duration", span, self._labels(self._records_of(item)[0]))

    def _labels(self, record: Record) -> dict[str, Any]:
        return {
            "messaging.system": "kafka",
            "messaging.operation.name": "handle",
            "messaging.operation.type": "process",
            "messaging.destination.name": record.topic,
            "messaging.consumer.group.name": self._group,
        }


def _is_replayed(record: Record) -> bool:
    return bool(record.headers) and sent_back(split(record.headers)[1]) > 0
