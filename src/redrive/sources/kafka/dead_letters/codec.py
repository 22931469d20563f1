"""
The default format of dead letters.

Owns it: the record's own key and value, and headers that describe the failure. Knows no Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.sources.kafka.dead_letters.headers import dead_letter_headers
from redrive.sources.kafka.records.dead_letter import DeadLetterCodec, FailedRecord, MessageParts

if TYPE_CHECKING:
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.records.completion import CompletionEvent


class HeaderCodec:
    """Writes the record as it is, with headers that describe the failure."""

    may_be_cut = True

    def encode(self, failed: FailedRecord) -> MessageParts:
        """Return the record's own key and value, with its headers and ours."""
        event, group, failed_at, first_failed_at = failed
        headers = dead_letter_headers(event, group, failed_at=failed_at, first_failed_at=first_failed_at)
        return MessageParts(event.record.key, event.record.value, headers)

    def decode(self, parts: MessageParts) -> MessageParts:
        """Return *parts*: the message carries the record as it is."""
        return parts


_HEADERS = HeaderCodec()


def codec_of(config: KafkaConfig) -> DeadLetterCodec:
    """Return the codec that *config* names, or the default."""
    return config.dlq_codec or _HEADERS


def failed_record(event: CompletionEvent, group: str, *, now_ms: int, monotonic: float) -> FailedRecord:
    """Return *event* as a failed record; *now_ms* is the time of day, *monotonic* that of the engine's clock."""
    first = event.record.first_failed
    age = monotonic - first if first else 0.0
    return FailedRecord(event, group, now_ms, now_ms - int(age * 1000))
