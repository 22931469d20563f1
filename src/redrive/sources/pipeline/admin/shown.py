"""
What operators are shown, as messages of the admin service.

Owns how letters, branches, reports and graphs become messages; a document's body is left out unless it is asked for.
Pure. Knows no client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.duration_pb2 import Duration

from redrive.sources.pipeline.engine.journey.streams import instant
from redrive.sources.pipeline.graph import names
from redrive.sources.pipeline.protos import admin_pb2 as messages
from redrive.sources.pipeline.protos import engine_pb2, graph_pb2
from redrive.sources.pipeline.protos.document_pb2 import DlqMessage

if TYPE_CHECKING:
    from redrive.sources.pipeline.admin.lanes.lane_job import LaneReport
    from redrive.sources.pipeline.admin.lanes.lane_letter import LaneLetter
    from redrive.sources.pipeline.admin.trace import FoundBranch
    from redrive.sources.pipeline.graph.model import Edge, Graph, Node

_LANES = {
    "input": (messages.LANE_INPUT, engine_pb2.PLACEMENT_TOPIC),
    "dlq": (messages.LANE_DLQ, engine_pb2.PLACEMENT_DLQ),
    "quarantine": (messages.LANE_QUARANTINE, engine_pb2.PLACEMENT_QUARANTINE),
    "done": (messages.LANE_DONE, engine_pb2.PLACEMENT_END),
}

_NOT_NOTED = "the ledger of this lane is too large for a commit, so a later replay may send some letters again"


def without_body(letter: DlqMessage) -> DlqMessage:
    """Return a copy of *letter* that has no content of its document."""
    found = DlqMessage()
    found.CopyFrom(letter)
    found.ClearField("undecoded")
    found.stream.document.ClearField("body")
    found.stream.document.ClearField("data")
    if not letter.stream.HasField("document"):
        found.stream.ClearField("document")
    if not letter.HasField("stream"):
        found.ClearField("stream")
    return found


def letter_message(letter: LaneLetter, lane: str, *, with_body: bool = False) -> messages.PeekedLetter:
    """Return *letter* for people."""
    return messages.PeekedLetter(
        lane=_LANES[lane][0], topic=letter.topic, partition=letter.partition, offset=letter.offset,
        message=letter.message if with_body else without_body(letter.message),
    )  # fmt: skip


def progress_message(report: LaneReport) -> messages.ReplayProgress:
    """Return how far a job is."""
    told = [report.message, report.refusal, "" if report.is_noted else _NOT_NOTED]
    return messages.ReplayProgress(
        read=report.read, matched=report.matched, sent=report.sent, refused=report.refused,
        came_back=report.came_back, halted=report.is_halted, finished=report.is_finished,
        samples=[letter_message(letter, "dlq") for letter in report.samples], by_error_type=report.by_error_type,
        message="; ".join(each for each in told if each),
    )  # fmt: skip


def branch_message(found: FoundBranch) -> messages.TracedBranch:
    """Return one place of a document."""
    lane, placement = _LANES[found.lane]
    place = engine_pb2.BranchPlace(branch=found.branch, placement=placement, node_id=found.node, topic=found.topic)
    return messages.TracedBranch(
        place=place, lane=lane, partition=found.partition, offset=found.offset, history=found.history,
        processing_path=found.path, error_type=found.error_type, error_message=found.error_message,
        next_node_ids=() if found.is_past else found.next_nodes, at=instant(int(found.at * 1000)),
        past=found.is_past,
    )  # fmt: skip


def graph_message(graph: Graph) -> graph_pb2.PipelineGraph:
    """Return *graph* as Pipestream's users know it."""
    return graph_pb2.PipelineGraph(
        graph_id=graph.id, env=graph.env, version=graph.version, nodes=[_node(graph, node) for node in graph.nodes],
        edges=[_edge(graph, edge) for edge in graph.edges],
    )  # fmt: skip


def _node(graph: Graph, node: Node) -> graph_pb2.GraphNode:
    dlq = node.dlq
    return graph_pb2.GraphNode(
        node_id=node.id, name=node.name, module_id=node.module, kafka_input_topic=names.input_topic(graph, node),
        filter_conditions=[node.when] if node.when else [], output_topic=node.output or "",
        kafka_partitions=node.partitions or graph.partitions, consumer_slots=node.concurrency,
        timeout=_span(node.timeout),
        dlq_config=graph_pb2.DlqConfig(
            enabled=dlq.enabled, topic_override=dlq.topic_override, max_retries=dlq.max_retries,
            initial_backoff=_span(dlq.initial_backoff), max_backoff=_span(dlq.max_backoff),
            backoff_multiplier=dlq.backoff_multiplier, include_payload=dlq.include_payload, jitter=dlq.jitter,
            max_reprocess_count=dlq.max_reprocess_count, retry_codes=node.retry_codes,
        ),
    )  # fmt: skip


def _edge(graph: Graph, edge: Edge) -> graph_pb2.GraphEdge:
    is_direct = edge.transport == "grpc"
    return graph_pb2.GraphEdge(
        kafka_topic="" if is_direct else names.input_topic(graph, graph.by_id[edge.target]),
        edge_id=edge.id, from_node_id=edge.source, to_node_id=edge.target, condition=edge.when or "",
        priority=edge.priority, max_hops=edge.max_hops or 0,
        transport_type=graph_pb2.TRANSPORT_TYPE_GRPC if is_direct else graph_pb2.TRANSPORT_TYPE_MESSAGING,
    )  # fmt: skip


def _span(seconds: float) -> Duration:
    found = Duration()
    found.FromNanoseconds(round(seconds * 1e9))
    return found
