from google.protobuf import struct_pb2 as _struct_pb2
from redrive.sources.pipeline.protos import document_pb2 as _document_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_SUCCESS: _ClassVar[Outcome]
    OUTCOME_PARTIAL: _ClassVar[Outcome]
    OUTCOME_FAILURE: _ClassVar[Outcome]
    OUTCOME_SKIPPED: _ClassVar[Outcome]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_SUCCESS: Outcome
OUTCOME_PARTIAL: Outcome
OUTCOME_FAILURE: Outcome
OUTCOME_SKIPPED: Outcome

class ProcessConfiguration(_message.Message):
    __slots__ = ("json_config", "config_params")
    class ConfigParamsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    JSON_CONFIG_FIELD_NUMBER: _ClassVar[int]
    CONFIG_PARAMS_FIELD_NUMBER: _ClassVar[int]
    json_config: _struct_pb2.Struct
    config_params: _containers.ScalarMap[str, str]
    def __init__(self, json_config: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., config_params: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ServiceMetadata(_message.Message):
    __slots__ = ("pipeline_name", "pipe_step_name", "stream_id", "current_hop_number", "history", "stream_error_data", "context_params", "idempotency_key", "call")
    class ContextParamsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PIPELINE_NAME_FIELD_NUMBER: _ClassVar[int]
    PIPE_STEP_NAME_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    CURRENT_HOP_NUMBER_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    STREAM_ERROR_DATA_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_PARAMS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    pipeline_name: str
    pipe_step_name: str
    stream_id: str
    current_hop_number: int
    history: _containers.RepeatedCompositeFieldContainer[_document_pb2.StepExecutionRecord]
    stream_error_data: _document_pb2.ErrorData
    context_params: _containers.ScalarMap[str, str]
    idempotency_key: str
    call: int
    def __init__(self, pipeline_name: _Optional[str] = ..., pipe_step_name: _Optional[str] = ..., stream_id: _Optional[str] = ..., current_hop_number: _Optional[int] = ..., history: _Optional[_Iterable[_Union[_document_pb2.StepExecutionRecord, _Mapping]]] = ..., stream_error_data: _Optional[_Union[_document_pb2.ErrorData, _Mapping]] = ..., context_params: _Optional[_Mapping[str, str]] = ..., idempotency_key: _Optional[str] = ..., call: _Optional[int] = ...) -> None: ...

class ProcessDataRequest(_message.Message):
    __slots__ = ("document", "config", "metadata", "is_test", "dry_run")
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    IS_TEST_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    document: _document_pb2.PipeDoc
    config: ProcessConfiguration
    metadata: ServiceMetadata
    is_test: bool
    dry_run: bool
    def __init__(self, document: _Optional[_Union[_document_pb2.PipeDoc, _Mapping]] = ..., config: _Optional[_Union[ProcessConfiguration, _Mapping]] = ..., metadata: _Optional[_Union[ServiceMetadata, _Mapping]] = ..., is_test: bool = ..., dry_run: bool = ...) -> None: ...

class ProcessDataResponse(_message.Message):
    __slots__ = ("success", "output_doc", "error_details", "outcome", "error_message", "error_code", "logs")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_DOC_FIELD_NUMBER: _ClassVar[int]
    ERROR_DETAILS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    success: bool
    output_doc: _document_pb2.PipeDoc
    error_details: _struct_pb2.Struct
    outcome: Outcome
    error_message: str
    error_code: str
    logs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, success: bool = ..., output_doc: _Optional[_Union[_document_pb2.PipeDoc, _Mapping]] = ..., error_details: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., error_message: _Optional[str] = ..., error_code: _Optional[str] = ..., logs: _Optional[_Iterable[str]] = ...) -> None: ...

class ServiceRegistrationRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServiceRegistration(_message.Message):
    __slots__ = ("module_name", "version", "description", "json_config_schema", "max_message_bytes")
    MODULE_NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    JSON_CONFIG_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    module_name: str
    version: str
    description: str
    json_config_schema: _struct_pb2.Struct
    max_message_bytes: int
    def __init__(self, module_name: _Optional[str] = ..., version: _Optional[str] = ..., description: _Optional[str] = ..., json_config_schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., max_message_bytes: _Optional[int] = ...) -> None: ...
