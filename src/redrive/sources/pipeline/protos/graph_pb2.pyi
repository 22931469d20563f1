import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransportType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSPORT_TYPE_UNSPECIFIED: _ClassVar[TransportType]
    TRANSPORT_TYPE_MESSAGING: _ClassVar[TransportType]
    TRANSPORT_TYPE_GRPC: _ClassVar[TransportType]
TRANSPORT_TYPE_UNSPECIFIED: TransportType
TRANSPORT_TYPE_MESSAGING: TransportType
TRANSPORT_TYPE_GRPC: TransportType

class DlqConfig(_message.Message):
    __slots__ = ("enabled", "topic_override", "max_retries", "initial_backoff", "max_backoff", "backoff_multiplier", "include_payload", "jitter", "max_reprocess_count", "retry_codes")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    INITIAL_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    MAX_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    MAX_REPROCESS_COUNT_FIELD_NUMBER: _ClassVar[int]
    RETRY_CODES_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    topic_override: str
    max_retries: int
    initial_backoff: _duration_pb2.Duration
    max_backoff: _duration_pb2.Duration
    backoff_multiplier: float
    include_payload: bool
    jitter: str
    max_reprocess_count: int
    retry_codes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, enabled: bool = ..., topic_override: _Optional[str] = ..., max_retries: _Optional[int] = ..., initial_backoff: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_backoff: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., backoff_multiplier: _Optional[float] = ..., include_payload: bool = ..., jitter: _Optional[str] = ..., max_reprocess_count: _Optional[int] = ..., retry_codes: _Optional[_Iterable[str]] = ...) -> None: ...

class GraphNode(_message.Message):
    __slots__ = ("node_id", "name", "module_id", "custom_config", "kafka_input_topic", "dlq_config", "filter_conditions", "save_on_error", "kafka_partitions", "consumer_slots", "output_topic", "timeout")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODULE_ID_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_CONFIG_FIELD_NUMBER: _ClassVar[int]
    KAFKA_INPUT_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DLQ_CONFIG_FIELD_NUMBER: _ClassVar[int]
    FILTER_CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    SAVE_ON_ERROR_FIELD_NUMBER: _ClassVar[int]
    KAFKA_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_SLOTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    name: str
    module_id: str
    custom_config: _struct_pb2.Struct
    kafka_input_topic: str
    dlq_config: DlqConfig
    filter_conditions: _containers.RepeatedScalarFieldContainer[str]
    save_on_error: bool
    kafka_partitions: int
    consumer_slots: int
    output_topic: str
    timeout: _duration_pb2.Duration
    def __init__(self, node_id: _Optional[str] = ..., name: _Optional[str] = ..., module_id: _Optional[str] = ..., custom_config: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., kafka_input_topic: _Optional[str] = ..., dlq_config: _Optional[_Union[DlqConfig, _Mapping]] = ..., filter_conditions: _Optional[_Iterable[str]] = ..., save_on_error: bool = ..., kafka_partitions: _Optional[int] = ..., consumer_slots: _Optional[int] = ..., output_topic: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GraphEdge(_message.Message):
    __slots__ = ("edge_id", "from_node_id", "to_node_id", "condition", "priority", "transport_type", "kafka_topic", "max_hops")
    EDGE_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TO_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_TYPE_FIELD_NUMBER: _ClassVar[int]
    KAFKA_TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_HOPS_FIELD_NUMBER: _ClassVar[int]
    edge_id: str
    from_node_id: str
    to_node_id: str
    condition: str
    priority: int
    transport_type: TransportType
    kafka_topic: str
    max_hops: int
    def __init__(self, edge_id: _Optional[str] = ..., from_node_id: _Optional[str] = ..., to_node_id: _Optional[str] = ..., condition: _Optional[str] = ..., priority: _Optional[int] = ..., transport_type: _Optional[_Union[TransportType, str]] = ..., kafka_topic: _Optional[str] = ..., max_hops: _Optional[int] = ...) -> None: ...

class PipelineGraph(_message.Message):
    __slots__ = ("graph_id", "env", "version", "nodes", "edges")
    GRAPH_ID_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    graph_id: str
    env: str
    version: int
    nodes: _containers.RepeatedCompositeFieldContainer[GraphNode]
    edges: _containers.RepeatedCompositeFieldContainer[GraphEdge]
    def __init__(self, graph_id: _Optional[str] = ..., env: _Optional[str] = ..., version: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[GraphNode, _Mapping]]] = ..., edges: _Optional[_Iterable[_Union[GraphEdge, _Mapping]]] = ...) -> None: ...
