from redrive.sources.pipeline.protos import document_pb2 as _document_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Placement(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PLACEMENT_UNSPECIFIED: _ClassVar[Placement]
    PLACEMENT_TOPIC: _ClassVar[Placement]
    PLACEMENT_END: _ClassVar[Placement]
    PLACEMENT_DLQ: _ClassVar[Placement]
    PLACEMENT_QUARANTINE: _ClassVar[Placement]
    PLACEMENT_DROPPED: _ClassVar[Placement]
PLACEMENT_UNSPECIFIED: Placement
PLACEMENT_TOPIC: Placement
PLACEMENT_END: Placement
PLACEMENT_DLQ: Placement
PLACEMENT_QUARANTINE: Placement
PLACEMENT_DROPPED: Placement

class ProcessNodeRequest(_message.Message):
    __slots__ = ("stream", "node_id")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    stream: _document_pb2.PipeStream
    node_id: str
    def __init__(self, stream: _Optional[_Union[_document_pb2.PipeStream, _Mapping]] = ..., node_id: _Optional[str] = ...) -> None: ...

class BranchPlace(_message.Message):
    __slots__ = ("branch", "placement", "node_id", "topic")
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    branch: str
    placement: Placement
    node_id: str
    topic: str
    def __init__(self, branch: _Optional[str] = ..., placement: _Optional[_Union[Placement, str]] = ..., node_id: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class ProcessNodeResponse(_message.Message):
    __slots__ = ("places",)
    PLACES_FIELD_NUMBER: _ClassVar[int]
    places: _containers.RepeatedCompositeFieldContainer[BranchPlace]
    def __init__(self, places: _Optional[_Iterable[_Union[BranchPlace, _Mapping]]] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("document", "stream_id", "node_id", "context_params")
    class ContextParamsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_PARAMS_FIELD_NUMBER: _ClassVar[int]
    document: _document_pb2.PipeDoc
    stream_id: str
    node_id: str
    context_params: _containers.ScalarMap[str, str]
    def __init__(self, document: _Optional[_Union[_document_pb2.PipeDoc, _Mapping]] = ..., stream_id: _Optional[str] = ..., node_id: _Optional[str] = ..., context_params: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("stream_id", "topic", "partition", "offset")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    topic: str
    partition: int
    offset: int
    def __init__(self, stream_id: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...
