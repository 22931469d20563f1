"""
Stalled partitions.

Owns what happens when one record holds back a partition's commits for too long: the rule (`what_to_do`), its texts,
and which record is at the watermark of each partition. To give a record up it asks the work manager, which knows
whether the record has ended. Reads no clock; knows no Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from redrive.core.letter import Category, Failure
from redrive.errors import SourceError
from redrive.sources.kafka.records.completion import CompletionEvent, CompletionStatus
from redrive.sources.kafka.records.disposition import Disposition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from redrive.sources.kafka.config_checks import StallPolicy
    from redrive.sources.kafka.control.partition import Partition
    from redrive.sources.kafka.records.record import Assignment, Record

Step = Literal["nothing", "tell", "give_up", "leave"]
_WAY_OUT = "the consumer leaves its group, as kafka.stall_policy says; start it again, or raise kafka.stall_after_ms"
_ROOM = 1000  # records kept beyond those that were open at the last count


def what_to_do(policy: StallPolicy, still: float, limit: float, *, tried: bool, ended: bool) -> Step:
    """
    Return what to do when the watermark of a partition has not moved for *still* seconds.

    *tried* tells whether the record at the watermark has begun a try, *ended* whether its worker is done with it. A
    record that was never tried is not at fault, so it is not given up. A record that has ended waits for the broker
    or for a flood to pass, so neither step would help it.
    """
    if still <= limit:
        return "nothing"
    if policy == "warn" or ended:
        return "tell"
    if policy == "leave_group":
        return "leave"
    return "give_up" if tried else "tell"


class Stalls:
    """
    Watches the watermarks, and applies *policy* to one that has not moved for *limit* seconds.

    *give_up* takes the completion of a record that becomes a dead letter.
    """

    def __init__(self, policy: StallPolicy, limit: float, give_up: Callable[[CompletionEvent], None]) -> None:
        self._policy, self._limit, self._give_up = policy, limit, give_up
        self._open: list[Record] = []  # not done at the last look; in order within each partition
        self._room = _ROOM

    def admit(self, records: list[Record]) -> None:
        """Keep *records*, if the policy may have to act on one."""
        if self._policy != "warn":
            self._open += records
            if len(self._open) > self._room:
                self._tidy()

    def reasons(self, partitions: Collection[Partition], now: float) -> list[str]:
        """Return a sentence for each stalled partition."""
        ages = ((each, each.looked_at(now)) for each in partitions)
        return [_sentence(each, still) for each, still in ages if still > self._limit]

    def act(self, partitions: Collection[Partition], now: float) -> None:
        """Apply the policy; raise SourceError if that is to leave the group."""
        if self._policy == "warn":
            return
        heads = self._heads()
        for partition in partitions:
            head, still = heads.get(partition.assignment), partition.looked_at(now)
            if head is None:
                continue
            step = what_to_do(self._policy, still, self._limit, tried=head.attempts > 0, ended=head.ended)
            if step == "give_up":
                self._give_up(_given_up(head, still))
            elif step == "leave":
                raise SourceError(f"{_sentence(partition, still)}; {_WAY_OUT}")

    def _heads(self) -> dict[Assignment, Record]:
        """Return the first record of each partition that is not done."""
        self._tidy()
        heads: dict[Assignment, Record] = {}
        for record in self._open:
            heads.setdefault(record.assignment, record)
        return heads

    def _tidy(self) -> None:
        """Forget records that are done, to free their content."""
        self._open = [each for each in self._open if not each.assignment.closed and not each.done]
        self._room = 2 * len(self._open) + _ROOM


def _sentence(partition: Partition, still: float) -> str:
    return f"{partition.name}: offset {partition.watermark} has held back commits for {still:.0f} s"


def _given_up(record: Record, still: float) -> CompletionEvent:
    failure = Failure(
        error_type="Stalled",
        message=f"it held back the commits of its partition for {still:.0f} s",
        category=Category.RESOURCE,
        rule="kafka.stall_policy is dlq_head",
        terminal=True,
        fingerprint=Disposition.STALLED,
    )
    return CompletionEvent(record, CompletionStatus.FAILURE, record.attempts, failure, Disposition.STALLED)
