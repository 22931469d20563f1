"""
The topics of a pipeline.

Owns their creation: what a graph needs and the broker does not have, with the partitions that the graph asks for. The
consumers create the DLQ topics themselves. Blocks, so it runs in a thread. Knows no document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # they are its public names

from redrive.errors import SourceError
from redrive.sources.pipeline.graph import names

if TYPE_CHECKING:
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.pipeline.graph.model import Graph

_LIMIT = 15.0  # seconds for one request
_ROOM = 1024 * 1024  # bytes that a stream may add to the largest document
LARGEST = 90 * 1024 * 1024  # bytes; a broker reads no larger request, unless it is set up for it
_DEFAULT_REPLICAS = -1


def needed(graph: Graph) -> dict[str, NewTopic]:
    """Return the topics that *graph* needs, DLQ topics excepted, as they are created."""
    found = {names.done_topic(graph): _new(names.done_topic(graph), graph.partitions, 0)}
    for node in graph.nodes:
        partitions, room = node.partitions or graph.partitions, node.max_message_bytes
        own = [names.input_topic(graph, node), names.quarantine_topic(graph, node)]
        for topic in [*own, node.output] if node.output else own:
            found[topic] = _new(topic, partitions, room)
    return found


def prepare(graph: Graph, kafka: KafkaConfig) -> list[str]:
    """Create the topics that *graph* needs and that are missing; return their names. Raise SourceError."""
    admin = AdminClient(kafka.client_settings("producer"))
    try:
        known = admin.list_topics(timeout=_LIMIT).topics
    except KafkaException as error:
        raise SourceError(f"cannot ask the broker for the topics of the graph: {error.args[0].str()}") from None
    missing = {name: topic for name, topic in needed(graph).items() if name not in known}
    if missing and not graph.create_topics:
        listed = ", ".join(sorted(missing))
        raise SourceError(
            f"the graph needs topics that do not exist: {listed}; create them, or set create_topics: true"
        )
    if missing:
        _create(admin, missing)
    return sorted(missing)


def _create(admin: AdminClient, missing: dict[str, NewTopic]) -> None:
    for name, made in admin.create_topics(list(missing.values()), request_timeout=_LIMIT).items():
        try:
            made.result(_LIMIT)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another engine was quicker
                why = error.args[0].str()
                raise SourceError(f"cannot create the topic {name!r}: {why}; create it, or allow it") from None


def _new(topic: str, partitions: int, room: int) -> NewTopic:
    config = {"max.message.bytes": str(min(LARGEST, room + _ROOM))} if room else {}
    return NewTopic(topic, partitions, _DEFAULT_REPLICAS, config=config)
