"""
Which letters of a lane an operator means.

Owns the choice: all the conditions that are given must hold, and a choice without any is refused unless it says that
everything is meant. Pure: knows no Kafka client and no gRPC server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from redrive.errors import SourceError
from redrive.sources.pipeline.admin.lanes.lane_letter import doc_id_of, reprocess_count_of

if TYPE_CHECKING:
    from redrive.sources.pipeline.protos.admin_pb2 import LetterFilter
    from redrive.sources.pipeline.protos.document_pb2 import DlqMessage


class LetterChoice(Struct, frozen=True, kw_only=True):
    """Conditions on the letters of a DLQ or quarantine topic; empty ones mean any."""

    stream_ids: frozenset[str] = frozenset()
    doc_ids: frozenset[str] = frozenset()
    error_types: frozenset[str] = frozenset()
    error_contains: str = ""  # without regard to case
    failed_after: float | None = None  # seconds since the epoch
    failed_before: float | None = None
    min_reprocess_count: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it names no condition, so that it means every letter."""
        return self == LetterChoice()

    def picks(self, letter: DlqMessage) -> bool:
        """Whether *letter* meets every condition."""
        return (
            (not self.stream_ids or letter.stream.stream_id in self.stream_ids)
            and (not self.doc_ids or doc_id_of(letter) in self.doc_ids)
            and (not self.error_types or letter.error_type.upper() in {each.upper() for each in self.error_types})
            and self.error_contains.casefold() in letter.error_message.casefold()
            and self._is_in_time(letter)
            and reprocess_count_of(letter) >= self.min_reprocess_count
        )

    def _is_in_time(self, letter: DlqMessage) -> bool:
        at = letter.failed_at.ToNanoseconds() / 1e9
        after, before = self.failed_after, self.failed_before
        return (after is None or at >= after) and (before is None or at < before)


EVERY_LETTER = LetterChoice()


def choice_of(message: LetterFilter, *, acts: bool) -> LetterChoice:
    """Return *message* as a choice; raise SourceError if it names nothing, or `all` beside a condition, and *acts*."""
    choice = LetterChoice(
        stream_ids=frozenset(message.stream_ids),
        doc_ids=frozenset(message.doc_ids),
        error_types=frozenset(message.error_types),
        error_contains=message.error_contains,
        failed_after=_seconds(message, "failed_after"),
        failed_before=_seconds(message, "failed_before"),
        min_reprocess_count=message.min_reprocess_count,
    )
    if acts:
        refuse_unclear(choice, everything=message.all)
    return choice


def refuse_unclear(choice: LetterChoice, *, everything: bool) -> None:
    """Raise SourceError unless it is clear which letters are meant."""
    if choice.is_open and not everything:
        raise SourceError(
            "which letters? give a filter such as a stream id or an error type, or say that all are meant"
        )
    if everything and not choice.is_open:
        raise SourceError("all letters and a filter exclude each other; leave one of them out")


def _seconds(message: LetterFilter, name: str) -> float | None:
    return getattr(message, name).ToNanoseconds() / 1e9 if message.HasField(name) else None
