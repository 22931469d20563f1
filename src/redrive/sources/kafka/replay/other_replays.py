"""
What other replays of a dead-letter topic have sent.

Owns finding them: each replay remembers under a group of its own how far it came, and says there what
it picked. A dead letter stays in its topic when it is sent home, so this is all that tells of it. What a
broker forgot, or does not show to this client, is not known. Blocks; for commands and scripts.
"""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from redrive.errors import SourceError
from redrive.sources.kafka.client.errors import Heard, said
from redrive.sources.kafka.replay.filter import GROUP_OF_REPLAYS, Choice
from redrive.sources.kafka.replay.progress import Reached, choice_in
from redrive.sources.kafka.replay.reader import REQUEST

if TYPE_CHECKING:
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.replay.filter import DeadLetter


class Earlier:
    """The replays of others: what each picked, and how far it came in each partition."""

    def __init__(self, replays: list[tuple[Choice, dict[int, Reached]]]) -> None:
        self._replays = replays

    def sent(self, letter: DeadLetter) -> bool:
        """Whether one of them has sent *letter*."""
        return any(
            letter.partition in reached and reached[letter.partition].has(letter.offset, letter.replays)
            for choice, reached in self._replays
            if choice.picks(letter)
        )


def earlier_replays(config: KafkaConfig, topic: str, own: Choice) -> Earlier:
    """Return all replays of *topic* that the broker remembers, but for that of *own*; raise SourceError."""
    heard = Heard()
    settings: dict[str, Any] = {**config.client_settings("producer"), "error_cb": heard}
    admin = AdminClient(settings)
    name = re.compile(re.escape(GROUP_OF_REPLAYS.format(topic=topic)) + "[0-9a-f]{12}")
    try:
        groups = [each.group_id for each in admin.list_consumer_groups(request_timeout=REQUEST).result().valid]
        found = admin.list_topics(topic, REQUEST).topics[topic]
        places = [TopicPartition(topic, number) for number in found.partitions]
        others = [group for group in groups if name.fullmatch(group) and group != own.group(topic)]
        return Earlier([replay for group in others if (replay := _read(config, group, places)) is not None])
    except KafkaException as error:
        why = said(error.args[0], config, heard)
        raise SourceError(f"which replays of {topic!r} there were cannot be found out: {why}") from None


def _read(config: KafkaConfig, group: str, places: list[TopicPartition]) -> tuple[Choice, dict[int, Reached]] | None:
    """Return what the replay of *group* picked and reached; None if it does not say what it picked."""
    settings = {**config.client_settings("consumer"), **config.consumer_settings, "group.id": group}
    with closing(Consumer({**settings, "enable.auto.commit": False})) as asker:
        committed = [place for place in asker.committed(places, REQUEST) if place.error is None and place.offset >= 0]
    choices = [choice for place in committed if (choice := Choice.read(choice_in(place.metadata))) is not None]
    reached = {place.partition: Reached(place.offset, place.metadata) for place in committed}
    return (choices[0], reached) if choices else None
