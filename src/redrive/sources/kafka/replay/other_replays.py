"""
What other replays of a dead-letter topic have sent.

Owns finding them. Each replay commits its progress and its filter under a consumer group of its own. A dead letter
stays in its topic when it is sent back, so these groups are the only trace. Groups that have expired, or that this
client may not see, are unknown. Blocks; for commands and scripts.
"""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from redrive.errors import SourceError
from redrive.sources.kafka.client.errors import Heard, said
from redrive.sources.kafka.replay.filter import GROUP_OF_REPLAYS, Filter
from redrive.sources.kafka.replay.progress import Progress, filter_in
from redrive.sources.kafka.replay.reader import REQUEST

if TYPE_CHECKING:
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.replay.filter import DeadLetter


class OtherReplays:
    """Other replays: the filter of each, and its progress in each partition."""

    def __init__(self, replays: list[tuple[Filter, dict[int, Progress]]]) -> None:
        self._replays = replays

    def sent(self, letter: DeadLetter) -> bool:
        """Whether one of them has sent *letter*."""
        return any(
            letter.partition in reached and reached[letter.partition].has(letter.offset, letter.replays)
            for each, reached in self._replays
            if each.picks(letter)
        )


def other_replays(config: KafkaConfig, topic: str, own: Filter) -> OtherReplays:
    """Return all replays of *topic* that the broker remembers, except that of *own*; raise SourceError."""
    heard = Heard()
    settings: dict[str, Any] = {**config.client_settings("producer"), "error_cb": heard}
    admin = AdminClient(settings)
    name = re.compile(re.escape(GROUP_OF_REPLAYS.format(topic=topic)) + "[0-9a-f]{12}")
    try:
        groups = [each.group_id for each in admin.list_consumer_groups(request_timeout=REQUEST).result().valid]
        found = admin.list_topics(topic, REQUEST).topics[topic]
        places = [TopicPartition(topic, number) for number in found.partitions]
        others = [group for group in groups if name.fullmatch(group) and group != own.group(topic)]
        return OtherReplays([replay for group in others if (replay := _read(config, group, places)) is not None])
    except KafkaException as error:
        why = said(error.args[0], config, heard)
        raise SourceError(f"cannot list earlier replays of {topic!r}: {why}") from None


def _read(config: KafkaConfig, group: str, places: list[TopicPartition]) -> tuple[Filter, dict[int, Progress]] | None:
    """Return the filter and the progress of the replay of *group*; None if it has no filter in its note."""
    settings = {**config.client_settings("consumer"), **config.consumer_settings, "group.id": group}
    with closing(Consumer({**settings, "enable.auto.commit": False})) as asker:
        committed = [place for place in asker.committed(places, REQUEST) if place.error is None and place.offset >= 0]
    filters = [found for place in committed if (found := Filter.read(filter_in(place.metadata))) is not None]
    reached = {place.partition: Progress(place.offset, place.metadata) for place in committed}
    return (filters[0], reached) if filters else None
