"""
A document on its way.

Owns how a stream changes: what a new one holds, what a step adds to its history, how an edge carries it to the next
node under the name of its branch, and the small record of its end. Pure: instants are arguments. Knows no Kafka, no
gRPC and no graph but the names of its nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.timestamp_pb2 import Timestamp

from redrive.sources.pipeline.protos.document_pb2 import (
    DOCUMENT_OUTCOME_SUCCEEDED,
    DOCUMENT_OUTCOME_WITH_FAILURES,
    STEP_STATUS_FAILURE,
    STEP_STATUS_PARTIAL,
    STEP_STATUS_SKIPPED,
    STEP_STATUS_SUCCESS,
    DoneRecord,
    ErrorData,
    PipeStream,
    StepExecutionRecord,
)
from redrive.sources.pipeline.protos.module_pb2 import (
    OUTCOME_FAILURE,
    OUTCOME_PARTIAL,
    OUTCOME_SKIPPED,
    OUTCOME_SUCCESS,
    OUTCOME_UNSPECIFIED,
)

if TYPE_CHECKING:
    from redrive.sources.pipeline.graph.model import Graph, Node
    from redrive.sources.pipeline.protos.document_pb2 import PipeDoc
    from redrive.sources.pipeline.protos.module_pb2 import ProcessDataResponse

_STATUS = {
    OUTCOME_SUCCESS: STEP_STATUS_SUCCESS,
    OUTCOME_PARTIAL: STEP_STATUS_PARTIAL,
    OUTCOME_FAILURE: STEP_STATUS_FAILURE,
    OUTCOME_SKIPPED: STEP_STATUS_SKIPPED,
}
_GOES_ON = frozenset({OUTCOME_SUCCESS, OUTCOME_PARTIAL})  # with the module's document; otherwise with the input
_TROUBLED = frozenset({STEP_STATUS_FAILURE, STEP_STATUS_PARTIAL})


def instant(milliseconds: int) -> Timestamp:
    """Return a time of day, in ms since the epoch, as protobuf has it."""
    return Timestamp(seconds=milliseconds // 1000, nanos=milliseconds % 1000 * 1_000_000)


def new_stream(graph: Graph, node: Node, document: PipeDoc, *, stream_id: str, now_ms: int) -> PipeStream:
    """Return *document* as a stream that enters the graph at *node*."""
    stream = PipeStream(stream_id=stream_id, current_node_id=node.id, document=document)
    metadata = stream.metadata
    metadata.created_at.CopyFrom(instant(now_ms))
    metadata.entry_node_id, metadata.graph_id, metadata.graph_version = node.id, graph.id, graph.version
    return stream


def document_of(stream: PipeStream) -> PipeDoc:
    """Return the document that *stream* carries; one that travels by reference has no body."""
    return stream.document_ref.document if stream.HasField("document_ref") else stream.document


# ---------------------------------------------------------------------- a step


def outcome_of(answer: ProcessDataResponse) -> int:
    """Return what a module says of its step; an older one says it by `success`, and says no more if it is content."""
    if answer.outcome != OUTCOME_UNSPECIFIED:
        return answer.outcome if answer.outcome in _STATUS else OUTCOME_FAILURE
    return OUTCOME_FAILURE if answer.HasField("success") and not answer.success else OUTCOME_SUCCESS


def stepped(
    graph: Graph, node: Node, stream: PipeStream, *, status: int, calls: int, began_ms: int, ended_ms: int
) -> StepExecutionRecord:
    """Note in *stream* that it has passed *node*; return its new record, which may be added to."""
    hops, ended = stream.hop_count + 1, instant(ended_ms)
    metadata = stream.metadata
    stream.hop_count, stream.current_node_id = hops, node.id
    stream.processing_path.append(node.id)
    metadata.last_processed_at.CopyFrom(ended)
    return metadata.history.add(
        hop_number=hops, node_id=node.id, module_id=node.module, status=status, calls=calls, branch=stream.branch,
        start_time=instant(began_ms), end_time=ended, graph_id=graph.id, stream_id=stream.stream_id,
    )  # fmt: skip


def answered(
    graph: Graph,
    node: Node,
    stream: PipeStream,
    answer: ProcessDataResponse,
    *,
    calls: int,
    began_ms: int,
    ended_ms: int,
) -> bool:
    """Add a module's *answer* to *stream*; return whether the module's document goes on in place of the input."""
    outcome = outcome_of(answer)
    record = stepped(
        graph, node, stream, status=_STATUS[outcome], calls=calls, began_ms=began_ms, ended_ms=ended_ms  # type: ignore[index]  # an enum
    )  # fmt: skip
    if answer.logs:
        record.logs.extend(answer.logs)
    if outcome not in {OUTCOME_SUCCESS, OUTCOME_SKIPPED}:
        record.error_info.CopyFrom(_error(node, answer, ended_ms))
    return outcome in _GOES_ON and answer.HasField("output_doc")


def _error(node: Node, answer: ProcessDataResponse, now_ms: int) -> ErrorData:
    found = ErrorData(
        error_message=answer.error_message, error_code=answer.error_code, originating_node_id=node.id,
        timestamp=instant(now_ms),
    )  # fmt: skip
    if answer.HasField("error_details"):
        found.technical_details = str(answer.error_details)[:2000]
    return found


# ---------------------------------------------------------------------- on to the next node, or the end


def branch_name(branch: str, number: int, count: int) -> str:
    """Return the name of branch *number*, from 1, of *count* that leave *branch*; a single one keeps its name."""
    if count == 1:
        return branch
    own = f"{number}of{count}"
    return f"{branch}/{own}" if branch else own


def next_stream(stream: PipeStream, node_id: str, branch: str, *, is_last: bool) -> PipeStream:
    """Return *stream*, or a copy unless it *is_last*, on its way to *node_id*; replays are counted per node."""
    found = stream
    if not is_last:
        found = PipeStream()
        found.CopyFrom(stream)
    found.current_node_id, found.branch = node_id, branch
    found.ClearField("reprocess_count")
    found.ClearField("replay_id")
    return found


def done_record(graph: Graph, node: Node, stream: PipeStream, *, now_ms: int) -> DoneRecord:
    """Return the small record of a branch that ends at *node*."""
    troubled = any(step.status in _TROUBLED for step in stream.metadata.history)
    return DoneRecord(
        stream_id=stream.stream_id, doc_id=document_of(stream).doc_id, branch=stream.branch, last_node_id=node.id,
        processing_path=stream.processing_path, history=stream.metadata.history, ended_at=instant(now_ms),
        outcome=DOCUMENT_OUTCOME_WITH_FAILURES if troubled else DOCUMENT_OUTCOME_SUCCEEDED,
        graph_id=graph.id, graph_version=graph.version, output_topic=node.output or "",
    )  # fmt: skip
