import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from redrive.sources.pipeline.protos import document_pb2 as _document_pb2
from redrive.sources.pipeline.protos import engine_pb2 as _engine_pb2
from redrive.sources.pipeline.protos import graph_pb2 as _graph_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Lane(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LANE_UNSPECIFIED: _ClassVar[Lane]
    LANE_INPUT: _ClassVar[Lane]
    LANE_DLQ: _ClassVar[Lane]
    LANE_QUARANTINE: _ClassVar[Lane]
    LANE_DONE: _ClassVar[Lane]
    LANE_OUTPUT: _ClassVar[Lane]

class NodeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_STATE_UNSPECIFIED: _ClassVar[NodeState]
    NODE_STATE_RUNNING: _ClassVar[NodeState]
    NODE_STATE_PAUSED: _ClassVar[NodeState]
    NODE_STATE_HELD: _ClassVar[NodeState]
    NODE_STATE_BREAKER_OPEN: _ClassVar[NodeState]
    NODE_STATE_DRAINING: _ClassVar[NodeState]
    NODE_STATE_REMOVED: _ClassVar[NodeState]
LANE_UNSPECIFIED: Lane
LANE_INPUT: Lane
LANE_DLQ: Lane
LANE_QUARANTINE: Lane
LANE_DONE: Lane
LANE_OUTPUT: Lane
NODE_STATE_UNSPECIFIED: NodeState
NODE_STATE_RUNNING: NodeState
NODE_STATE_PAUSED: NodeState
NODE_STATE_HELD: NodeState
NODE_STATE_BREAKER_OPEN: NodeState
NODE_STATE_DRAINING: NodeState
NODE_STATE_REMOVED: NodeState

class GetGraphRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetGraphResponse(_message.Message):
    __slots__ = ("graph", "loaded_at")
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    LOADED_AT_FIELD_NUMBER: _ClassVar[int]
    graph: _graph_pb2.PipelineGraph
    loaded_at: _timestamp_pb2.Timestamp
    def __init__(self, graph: _Optional[_Union[_graph_pb2.PipelineGraph, _Mapping]] = ..., loaded_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ("node_ids",)
    NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    node_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes", "graph_version", "edges")
    NODES_FIELD_NUMBER: _ClassVar[int]
    GRAPH_VERSION_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeStatus]
    graph_version: int
    edges: _containers.RepeatedCompositeFieldContainer[EdgeStatus]
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeStatus, _Mapping]]] = ..., graph_version: _Optional[int] = ..., edges: _Optional[_Iterable[_Union[EdgeStatus, _Mapping]]] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("node_id", "state", "reason", "reason_by", "module", "depth", "in_flight", "documents_in", "documents_out", "logical_failures", "retries", "dead_letters", "quarantined", "dropped", "rate", "p50", "p99", "dlq_depth", "quarantine_depth", "oldest_dead_letter", "last_error_type", "last_error_message", "repeats")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REASON_BY_FIELD_NUMBER: _ClassVar[int]
    MODULE_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_IN_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_OUT_FIELD_NUMBER: _ClassVar[int]
    LOGICAL_FAILURES_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    P50_FIELD_NUMBER: _ClassVar[int]
    P99_FIELD_NUMBER: _ClassVar[int]
    DLQ_DEPTH_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_DEPTH_FIELD_NUMBER: _ClassVar[int]
    OLDEST_DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_TYPE_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REPEATS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    state: NodeState
    reason: str
    reason_by: str
    module: str
    depth: int
    in_flight: int
    documents_in: int
    documents_out: int
    logical_failures: int
    retries: int
    dead_letters: int
    quarantined: int
    dropped: int
    rate: float
    p50: _duration_pb2.Duration
    p99: _duration_pb2.Duration
    dlq_depth: int
    quarantine_depth: int
    oldest_dead_letter: _timestamp_pb2.Timestamp
    last_error_type: str
    last_error_message: str
    repeats: int
    def __init__(self, node_id: _Optional[str] = ..., state: _Optional[_Union[NodeState, str]] = ..., reason: _Optional[str] = ..., reason_by: _Optional[str] = ..., module: _Optional[str] = ..., depth: _Optional[int] = ..., in_flight: _Optional[int] = ..., documents_in: _Optional[int] = ..., documents_out: _Optional[int] = ..., logical_failures: _Optional[int] = ..., retries: _Optional[int] = ..., dead_letters: _Optional[int] = ..., quarantined: _Optional[int] = ..., dropped: _Optional[int] = ..., rate: _Optional[float] = ..., p50: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., p99: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., dlq_depth: _Optional[int] = ..., quarantine_depth: _Optional[int] = ..., oldest_dead_letter: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_error_type: _Optional[str] = ..., last_error_message: _Optional[str] = ..., repeats: _Optional[int] = ...) -> None: ...

class EdgeStatus(_message.Message):
    __slots__ = ("edge_id", "from_node_id", "to_node_id", "sent")
    EDGE_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TO_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    edge_id: str
    from_node_id: str
    to_node_id: str
    sent: int
    def __init__(self, edge_id: _Optional[str] = ..., from_node_id: _Optional[str] = ..., to_node_id: _Optional[str] = ..., sent: _Optional[int] = ...) -> None: ...

class LetterFilter(_message.Message):
    __slots__ = ("stream_ids", "doc_ids", "error_types", "error_contains", "failed_after", "failed_before", "min_reprocess_count", "all")
    STREAM_IDS_FIELD_NUMBER: _ClassVar[int]
    DOC_IDS_FIELD_NUMBER: _ClassVar[int]
    ERROR_TYPES_FIELD_NUMBER: _ClassVar[int]
    ERROR_CONTAINS_FIELD_NUMBER: _ClassVar[int]
    FAILED_AFTER_FIELD_NUMBER: _ClassVar[int]
    FAILED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    MIN_REPROCESS_COUNT_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    stream_ids: _containers.RepeatedScalarFieldContainer[str]
    doc_ids: _containers.RepeatedScalarFieldContainer[str]
    error_types: _containers.RepeatedScalarFieldContainer[str]
    error_contains: str
    failed_after: _timestamp_pb2.Timestamp
    failed_before: _timestamp_pb2.Timestamp
    min_reprocess_count: int
    all: bool
    def __init__(self, stream_ids: _Optional[_Iterable[str]] = ..., doc_ids: _Optional[_Iterable[str]] = ..., error_types: _Optional[_Iterable[str]] = ..., error_contains: _Optional[str] = ..., failed_after: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., failed_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., min_reprocess_count: _Optional[int] = ..., all: bool = ...) -> None: ...

class PeekRequest(_message.Message):
    __slots__ = ("node_id", "lane", "filter", "limit", "with_body")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    WITH_BODY_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    lane: Lane
    filter: LetterFilter
    limit: int
    with_body: bool
    def __init__(self, node_id: _Optional[str] = ..., lane: _Optional[_Union[Lane, str]] = ..., filter: _Optional[_Union[LetterFilter, _Mapping]] = ..., limit: _Optional[int] = ..., with_body: bool = ...) -> None: ...

class PeekedLetter(_message.Message):
    __slots__ = ("lane", "topic", "partition", "offset", "message")
    LANE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    lane: Lane
    topic: str
    partition: int
    offset: int
    message: _document_pb2.DlqMessage
    def __init__(self, lane: _Optional[_Union[Lane, str]] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., message: _Optional[_Union[_document_pb2.DlqMessage, _Mapping]] = ...) -> None: ...

class PeekResponse(_message.Message):
    __slots__ = ("letters", "more")
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    letters: _containers.RepeatedCompositeFieldContainer[PeekedLetter]
    more: bool
    def __init__(self, letters: _Optional[_Iterable[_Union[PeekedLetter, _Mapping]]] = ..., more: bool = ...) -> None: ...

class ReplayRequest(_message.Message):
    __slots__ = ("node_id", "filter", "to_node_id", "dry_run", "rate", "reason", "actor", "canary", "limit")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    TO_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    CANARY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    filter: LetterFilter
    to_node_id: str
    dry_run: bool
    rate: float
    reason: str
    actor: str
    canary: int
    limit: int
    def __init__(self, node_id: _Optional[str] = ..., filter: _Optional[_Union[LetterFilter, _Mapping]] = ..., to_node_id: _Optional[str] = ..., dry_run: bool = ..., rate: _Optional[float] = ..., reason: _Optional[str] = ..., actor: _Optional[str] = ..., canary: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class QuarantineRequest(_message.Message):
    __slots__ = ("node_id", "filter", "dry_run", "reason", "actor")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    filter: LetterFilter
    dry_run: bool
    reason: str
    actor: str
    def __init__(self, node_id: _Optional[str] = ..., filter: _Optional[_Union[LetterFilter, _Mapping]] = ..., dry_run: bool = ..., reason: _Optional[str] = ..., actor: _Optional[str] = ...) -> None: ...

class ReplayProgress(_message.Message):
    __slots__ = ("read", "matched", "sent", "refused", "came_back", "halted", "finished", "samples", "by_error_type", "message")
    class ByErrorTypeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    READ_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    CAME_BACK_FIELD_NUMBER: _ClassVar[int]
    HALTED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    BY_ERROR_TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    read: int
    matched: int
    sent: int
    refused: int
    came_back: int
    halted: bool
    finished: bool
    samples: _containers.RepeatedCompositeFieldContainer[PeekedLetter]
    by_error_type: _containers.ScalarMap[str, int]
    message: str
    def __init__(self, read: _Optional[int] = ..., matched: _Optional[int] = ..., sent: _Optional[int] = ..., refused: _Optional[int] = ..., came_back: _Optional[int] = ..., halted: bool = ..., finished: bool = ..., samples: _Optional[_Iterable[_Union[PeekedLetter, _Mapping]]] = ..., by_error_type: _Optional[_Mapping[str, int]] = ..., message: _Optional[str] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("node_id", "reason", "actor")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    reason: str
    actor: str
    def __init__(self, node_id: _Optional[str] = ..., reason: _Optional[str] = ..., actor: _Optional[str] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("node_id", "reason", "actor")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    reason: str
    actor: str
    def __init__(self, node_id: _Optional[str] = ..., reason: _Optional[str] = ..., actor: _Optional[str] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("node_id", "reason", "actor")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    reason: str
    actor: str
    def __init__(self, node_id: _Optional[str] = ..., reason: _Optional[str] = ..., actor: _Optional[str] = ...) -> None: ...

class TraceRequest(_message.Message):
    __slots__ = ("stream_id", "within")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    within: _duration_pb2.Duration
    def __init__(self, stream_id: _Optional[str] = ..., within: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class TracedBranch(_message.Message):
    __slots__ = ("place", "lane", "partition", "offset", "history", "processing_path", "error_type", "error_message", "next_node_ids", "at", "past")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_PATH_FIELD_NUMBER: _ClassVar[int]
    ERROR_TYPE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NEXT_NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    PAST_FIELD_NUMBER: _ClassVar[int]
    place: _engine_pb2.BranchPlace
    lane: Lane
    partition: int
    offset: int
    history: _containers.RepeatedCompositeFieldContainer[_document_pb2.StepExecutionRecord]
    processing_path: _containers.RepeatedScalarFieldContainer[str]
    error_type: str
    error_message: str
    next_node_ids: _containers.RepeatedScalarFieldContainer[str]
    at: _timestamp_pb2.Timestamp
    past: bool
    def __init__(self, place: _Optional[_Union[_engine_pb2.BranchPlace, _Mapping]] = ..., lane: _Optional[_Union[Lane, str]] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., history: _Optional[_Iterable[_Union[_document_pb2.StepExecutionRecord, _Mapping]]] = ..., processing_path: _Optional[_Iterable[str]] = ..., error_type: _Optional[str] = ..., error_message: _Optional[str] = ..., next_node_ids: _Optional[_Iterable[str]] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., past: bool = ...) -> None: ...

class TraceResponse(_message.Message):
    __slots__ = ("stream_id", "doc_id", "branches", "complete")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    DOC_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCHES_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    doc_id: str
    branches: _containers.RepeatedCompositeFieldContainer[TracedBranch]
    complete: bool
    def __init__(self, stream_id: _Optional[str] = ..., doc_id: _Optional[str] = ..., branches: _Optional[_Iterable[_Union[TracedBranch, _Mapping]]] = ..., complete: bool = ...) -> None: ...

class ReloadRequest(_message.Message):
    __slots__ = ("actor", "dry_run")
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    actor: str
    dry_run: bool
    def __init__(self, actor: _Optional[str] = ..., dry_run: bool = ...) -> None: ...

class ReloadResponse(_message.Message):
    __slots__ = ("old_version", "new_version", "added_node_ids", "removed_node_ids", "changed_node_ids", "problems")
    OLD_VERSION_FIELD_NUMBER: _ClassVar[int]
    NEW_VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDED_NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    old_version: int
    new_version: int
    added_node_ids: _containers.RepeatedScalarFieldContainer[str]
    removed_node_ids: _containers.RepeatedScalarFieldContainer[str]
    changed_node_ids: _containers.RepeatedScalarFieldContainer[str]
    problems: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, old_version: _Optional[int] = ..., new_version: _Optional[int] = ..., added_node_ids: _Optional[_Iterable[str]] = ..., removed_node_ids: _Optional[_Iterable[str]] = ..., changed_node_ids: _Optional[_Iterable[str]] = ..., problems: _Optional[_Iterable[str]] = ...) -> None: ...
