"""
The operators' acts on the lanes of a graph, by name.

Owns what replay, readmit and quarantine mean for a node: which lane is read, where its letters go, and how replays are
counted. A readmitted document counts from zero again, because a person has looked at it. Knows no command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from redrive.core.trace_context import continuing
from redrive.engine.clock import unix_ms
from redrive.errors import SourceError
from redrive.sources.kafka.records.output import Output
from redrive.sources.pipeline.admin.lanes.canary import Canary
from redrive.sources.pipeline.admin.lanes.lane_job import LaneJob
from redrive.sources.pipeline.admin.lanes.lane_letter import stream_again
from redrive.sources.pipeline.engine.journey.streams import instant
from redrive.sources.pipeline.engine.node import group_of
from redrive.sources.pipeline.graph import names
from redrive.sources.pipeline.protos.document_pb2 import DlqMessage

if TYPE_CHECKING:
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.pipeline.admin.lanes.lane_letter import LaneLetter
    from redrive.sources.pipeline.admin.lanes.letter_choice import LetterChoice
    from redrive.sources.pipeline.graph.model import Graph, Node

LaneName = Literal["dlq", "quarantine"]


def node_of(graph: Graph, node_id: str) -> Node:
    """Return the node *node_id*; raise SourceError with those that there are."""
    if node_id not in graph.by_id:
        raise SourceError(f"the graph {graph.id!r} has no node {node_id!r}; it has {', '.join(sorted(graph.by_id))}")
    return graph.by_id[node_id]


def lane_of(graph: Graph, node: Node, lane: LaneName) -> str:
    """Return the topic of a node's lane."""
    return names.dlq_topic(graph, node) if lane == "dlq" else names.quarantine_topic(graph, node)


def replay_job(
    graph: Graph, node: Node, choice: LetterChoice, *, lane: LaneName = "dlq", target: Node | None = None,
    rate: float | None = None, limit: int | None = None, canary: int = 0,
) -> LaneJob:  # fmt: skip
    """Return the job that sends letters of *node* back to its input, or to that of *target*."""
    goal = target or node
    topic, is_readmitted = names.input_topic(graph, goal), lane == "quarantine"

    def output(letter: LaneLetter) -> Output:
        stream = stream_again(letter, goal)
        if is_readmitted:
            stream.reprocess_count = 0
        return _message(topic, stream.stream_id, stream.SerializeToString(), letter)

    return LaneJob(
        topic=lane_of(graph, node, lane), choice=choice, output=output, rate=rate, limit=limit, canary=canary
    )


def quarantine_job(graph: Graph, node: Node, choice: LetterChoice, *, limit: int | None = None) -> LaneJob:
    """Return the job that moves dead letters of *node* to its quarantine."""
    topic = names.quarantine_topic(graph, node)

    def output(letter: LaneLetter) -> Output:
        message = DlqMessage()
        message.CopyFrom(letter.message)
        message.quarantined = True
        message.quarantined_at.CopyFrom(instant(unix_ms()))
        return _message(topic, message.stream.stream_id, message.SerializeToString(), letter)

    return LaneJob(topic=names.dlq_topic(graph, node), choice=choice, output=output, needs_stream=False, limit=limit)


def _message(topic: str, stream_id: str, value: bytes, letter: LaneLetter) -> Output:
    """Return what becomes of *letter*: it goes on in the trace of its document."""
    return Output(
        topic=topic, key=stream_id.encode() or None, value=value, headers=tuple(continuing((), letter.trace or {}))
    )


def canary_for(kafka: KafkaConfig, graph: Graph, target: Node) -> Canary:
    """Return what watches the first documents that are sent to *target*."""
    return Canary(kafka, group_of(graph, target), [lane_of(graph, target, "dlq"), lane_of(graph, target, "quarantine")])
