import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StepStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STEP_STATUS_UNSPECIFIED: _ClassVar[StepStatus]
    STEP_STATUS_SUCCESS: _ClassVar[StepStatus]
    STEP_STATUS_FAILURE: _ClassVar[StepStatus]
    STEP_STATUS_SKIPPED: _ClassVar[StepStatus]
    STEP_STATUS_RETRYING: _ClassVar[StepStatus]
    STEP_STATUS_DISPATCH_FAILURE: _ClassVar[StepStatus]
    STEP_STATUS_PARTIAL: _ClassVar[StepStatus]

class DocumentOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DOCUMENT_OUTCOME_UNSPECIFIED: _ClassVar[DocumentOutcome]
    DOCUMENT_OUTCOME_SUCCEEDED: _ClassVar[DocumentOutcome]
    DOCUMENT_OUTCOME_WITH_FAILURES: _ClassVar[DocumentOutcome]
STEP_STATUS_UNSPECIFIED: StepStatus
STEP_STATUS_SUCCESS: StepStatus
STEP_STATUS_FAILURE: StepStatus
STEP_STATUS_SKIPPED: StepStatus
STEP_STATUS_RETRYING: StepStatus
STEP_STATUS_DISPATCH_FAILURE: StepStatus
STEP_STATUS_PARTIAL: StepStatus
DOCUMENT_OUTCOME_UNSPECIFIED: DocumentOutcome
DOCUMENT_OUTCOME_SUCCEEDED: DocumentOutcome
DOCUMENT_OUTCOME_WITH_FAILURES: DocumentOutcome

class PipeDoc(_message.Message):
    __slots__ = ("doc_id", "type", "media_type", "filename", "attributes", "data", "body", "body_size")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DOC_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    FILENAME_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    BODY_SIZE_FIELD_NUMBER: _ClassVar[int]
    doc_id: str
    type: str
    media_type: str
    filename: str
    attributes: _containers.ScalarMap[str, str]
    data: _struct_pb2.Struct
    body: bytes
    body_size: int
    def __init__(self, doc_id: _Optional[str] = ..., type: _Optional[str] = ..., media_type: _Optional[str] = ..., filename: _Optional[str] = ..., attributes: _Optional[_Mapping[str, str]] = ..., data: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., body: _Optional[bytes] = ..., body_size: _Optional[int] = ...) -> None: ...

class DocumentReference(_message.Message):
    __slots__ = ("doc_id", "graph_address_id", "account_id", "document", "key", "size", "sha256")
    DOC_ID_FIELD_NUMBER: _ClassVar[int]
    GRAPH_ADDRESS_ID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    doc_id: str
    graph_address_id: str
    account_id: str
    document: PipeDoc
    key: str
    size: int
    sha256: bytes
    def __init__(self, doc_id: _Optional[str] = ..., graph_address_id: _Optional[str] = ..., account_id: _Optional[str] = ..., document: _Optional[_Union[PipeDoc, _Mapping]] = ..., key: _Optional[str] = ..., size: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class ErrorData(_message.Message):
    __slots__ = ("error_message", "error_code", "technical_details", "originating_node_id", "attempted_target_node_id", "timestamp")
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    TECHNICAL_DETAILS_FIELD_NUMBER: _ClassVar[int]
    ORIGINATING_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTED_TARGET_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    error_message: str
    error_code: str
    technical_details: str
    originating_node_id: str
    attempted_target_node_id: str
    timestamp: _timestamp_pb2.Timestamp
    def __init__(self, error_message: _Optional[str] = ..., error_code: _Optional[str] = ..., technical_details: _Optional[str] = ..., originating_node_id: _Optional[str] = ..., attempted_target_node_id: _Optional[str] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class StepExecutionRecord(_message.Message):
    __slots__ = ("hop_number", "node_id", "service_instance_id", "start_time", "end_time", "status", "error_info", "attempted_target_node_id", "module_id", "graph_id", "document_id", "account_id", "stream_id", "crawl_id", "branch", "calls", "logs")
    HOP_NUMBER_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    SERVICE_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_INFO_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTED_TARGET_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    MODULE_ID_FIELD_NUMBER: _ClassVar[int]
    GRAPH_ID_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_ID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    CRAWL_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    hop_number: int
    node_id: str
    service_instance_id: str
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    status: StepStatus
    error_info: ErrorData
    attempted_target_node_id: str
    module_id: str
    graph_id: str
    document_id: str
    account_id: str
    stream_id: str
    crawl_id: str
    branch: str
    calls: int
    logs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, hop_number: _Optional[int] = ..., node_id: _Optional[str] = ..., service_instance_id: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., status: _Optional[_Union[StepStatus, str]] = ..., error_info: _Optional[_Union[ErrorData, _Mapping]] = ..., attempted_target_node_id: _Optional[str] = ..., module_id: _Optional[str] = ..., graph_id: _Optional[str] = ..., document_id: _Optional[str] = ..., account_id: _Optional[str] = ..., stream_id: _Optional[str] = ..., crawl_id: _Optional[str] = ..., branch: _Optional[str] = ..., calls: _Optional[int] = ..., logs: _Optional[_Iterable[str]] = ...) -> None: ...

class StreamMetadata(_message.Message):
    __slots__ = ("source_id", "created_at", "last_processed_at", "trace_id", "history", "stream_error", "context_params", "datasource_id", "account_id", "entry_node_id", "is_test", "dry_run", "graph_id", "graph_version", "crawl_id")
    class ContextParamsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_PROCESSED_AT_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    STREAM_ERROR_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_PARAMS_FIELD_NUMBER: _ClassVar[int]
    DATASOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    IS_TEST_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    GRAPH_ID_FIELD_NUMBER: _ClassVar[int]
    GRAPH_VERSION_FIELD_NUMBER: _ClassVar[int]
    CRAWL_ID_FIELD_NUMBER: _ClassVar[int]
    source_id: str
    created_at: _timestamp_pb2.Timestamp
    last_processed_at: _timestamp_pb2.Timestamp
    trace_id: str
    history: _containers.RepeatedCompositeFieldContainer[StepExecutionRecord]
    stream_error: ErrorData
    context_params: _containers.ScalarMap[str, str]
    datasource_id: str
    account_id: str
    entry_node_id: str
    is_test: bool
    dry_run: bool
    graph_id: str
    graph_version: int
    crawl_id: str
    def __init__(self, source_id: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_processed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., trace_id: _Optional[str] = ..., history: _Optional[_Iterable[_Union[StepExecutionRecord, _Mapping]]] = ..., stream_error: _Optional[_Union[ErrorData, _Mapping]] = ..., context_params: _Optional[_Mapping[str, str]] = ..., datasource_id: _Optional[str] = ..., account_id: _Optional[str] = ..., entry_node_id: _Optional[str] = ..., is_test: bool = ..., dry_run: bool = ..., graph_id: _Optional[str] = ..., graph_version: _Optional[int] = ..., crawl_id: _Optional[str] = ...) -> None: ...

class PipeStream(_message.Message):
    __slots__ = ("stream_id", "metadata", "document", "document_ref", "cluster_id", "current_node_id", "hop_count", "processing_path", "branch", "reprocess_count", "replay_id")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_REF_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CURRENT_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    HOP_COUNT_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_PATH_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    REPROCESS_COUNT_FIELD_NUMBER: _ClassVar[int]
    REPLAY_ID_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    metadata: StreamMetadata
    document: PipeDoc
    document_ref: DocumentReference
    cluster_id: str
    current_node_id: str
    hop_count: int
    processing_path: _containers.RepeatedScalarFieldContainer[str]
    branch: str
    reprocess_count: int
    replay_id: str
    def __init__(self, stream_id: _Optional[str] = ..., metadata: _Optional[_Union[StreamMetadata, _Mapping]] = ..., document: _Optional[_Union[PipeDoc, _Mapping]] = ..., document_ref: _Optional[_Union[DocumentReference, _Mapping]] = ..., cluster_id: _Optional[str] = ..., current_node_id: _Optional[str] = ..., hop_count: _Optional[int] = ..., processing_path: _Optional[_Iterable[str]] = ..., branch: _Optional[str] = ..., reprocess_count: _Optional[int] = ..., replay_id: _Optional[str] = ...) -> None: ...

class DlqMessage(_message.Message):
    __slots__ = ("stream", "error_type", "error_message", "failed_at", "retry_count", "failed_node_id", "original_topic", "original_partition", "original_offset", "dlq_reprocess_count", "quarantined", "quarantined_at", "undecoded", "payload_left_out")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ERROR_TYPE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FAILED_AT_FIELD_NUMBER: _ClassVar[int]
    RETRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    FAILED_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_PARTITION_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DLQ_REPROCESS_COUNT_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_AT_FIELD_NUMBER: _ClassVar[int]
    UNDECODED_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    stream: PipeStream
    error_type: str
    error_message: str
    failed_at: _timestamp_pb2.Timestamp
    retry_count: int
    failed_node_id: str
    original_topic: str
    original_partition: int
    original_offset: int
    dlq_reprocess_count: int
    quarantined: bool
    quarantined_at: _timestamp_pb2.Timestamp
    undecoded: bytes
    payload_left_out: bool
    def __init__(self, stream: _Optional[_Union[PipeStream, _Mapping]] = ..., error_type: _Optional[str] = ..., error_message: _Optional[str] = ..., failed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., retry_count: _Optional[int] = ..., failed_node_id: _Optional[str] = ..., original_topic: _Optional[str] = ..., original_partition: _Optional[int] = ..., original_offset: _Optional[int] = ..., dlq_reprocess_count: _Optional[int] = ..., quarantined: bool = ..., quarantined_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., undecoded: _Optional[bytes] = ..., payload_left_out: bool = ...) -> None: ...

class DoneRecord(_message.Message):
    __slots__ = ("stream_id", "doc_id", "branch", "last_node_id", "processing_path", "outcome", "history", "ended_at", "graph_id", "graph_version", "output_topic")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    DOC_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    LAST_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_PATH_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    GRAPH_ID_FIELD_NUMBER: _ClassVar[int]
    GRAPH_VERSION_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOPIC_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    doc_id: str
    branch: str
    last_node_id: str
    processing_path: _containers.RepeatedScalarFieldContainer[str]
    outcome: DocumentOutcome
    history: _containers.RepeatedCompositeFieldContainer[StepExecutionRecord]
    ended_at: _timestamp_pb2.Timestamp
    graph_id: str
    graph_version: int
    output_topic: str
    def __init__(self, stream_id: _Optional[str] = ..., doc_id: _Optional[str] = ..., branch: _Optional[str] = ..., last_node_id: _Optional[str] = ..., processing_path: _Optional[_Iterable[str]] = ..., outcome: _Optional[_Union[DocumentOutcome, str]] = ..., history: _Optional[_Iterable[_Union[StepExecutionRecord, _Mapping]]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., graph_id: _Optional[str] = ..., graph_version: _Optional[int] = ..., output_topic: _Optional[str] = ...) -> None: ...
