"""
What a source above the Kafka consumer may replace in dead letters.

Owns two ports: how dead-letter topics are named, and how a failed record is written to one. Both have defaults: a
suffix, and the record's own value with headers. Pure: knows no client and no clock.
"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - dataclasses read annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from redrive.sources.kafka.records.completion import CompletionEvent

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterNames:
    """
    How dead-letter topics are named.

    *topic_of* returns the dead-letter topic of a source topic; *source_of* returns the source topic of a dead-letter
    topic, or "" for any other topic. *pattern* is a POSIX regular expression that matches all dead-letter topics;
    consumers of topic patterns leave them out.
    """

    topic_of: Callable[[str], str]
    source_of: Callable[[str], str]
    pattern: str = ""


class FailedRecord(NamedTuple):
    """A record that becomes a dead letter of *group*; instants are ms since the epoch."""

    event: CompletionEvent
    group: str
    failed_at: int
    first_failed_at: int


class MessageParts(NamedTuple):
    """The content of a message."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]


class DeadLetterCodec(Protocol):
    """
    How a failed record is written to its dead-letter topic, and read from there.

    `decode` returns the record's own key and value, with headers in a dialect that `dead_letters.dialects` reads; it
    must not raise on a message that it did not write, and returns that message unchanged.
    """

    @property
    def may_be_cut(self) -> bool:
        """Whether headers and value may be shortened when the topic takes no message of that size."""

    def encode(self, failed: FailedRecord) -> MessageParts:
        """Return *failed* as the message to publish."""

    def decode(self, parts: MessageParts) -> MessageParts:
        """Return the record that a message of a dead-letter topic carries."""
