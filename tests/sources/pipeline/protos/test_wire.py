"""The numbers on the wire: what readers of other versions, and of Pipestream, find where they look."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from redrive.sources.pipeline.protos import admin_pb2, document_pb2, engine_pb2, graph_pb2, module_pb2

_OPTIONAL = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
_TYPES = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "PipeStream": descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
    "Timestamp": descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
}


def reader(**messages: list[tuple[str, str, int]]):
    """Return message classes that know only these fields, of a package of their own."""
    file = descriptor_pb2.FileDescriptorProto(name="subset.proto", package="subset", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, kind, number in fields:
            added = message.field.add(name=field, number=number, label=_OPTIONAL, type=_TYPES[kind])
            if kind in {"PipeStream", "Timestamp"}:
                added.type_name = ".subset.PipeStream" if kind == "PipeStream" else ".google.protobuf.Timestamp"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"subset.{name}")) for name in messages}


SUBSET = {  # the document's six fields
    "PipeStream": [("stream_id", "string", 1)],
    "DlqMessage": [
        ("stream", "PipeStream", 1),
        ("error_type", "string", 2),
        ("error_message", "string", 3),
        ("failed_at", "Timestamp", 4),
        ("failed_node_id", "string", 6),
        ("original_topic", "string", 7),
    ],
}


def full_letter() -> document_pb2.DlqMessage:
    return document_pb2.DlqMessage(
        stream=document_pb2.PipeStream(stream_id="s1", document=document_pb2.PipeDoc(doc_id="d1", body=b"\0\xff")),
        error_type="TIMEOUT",
        error_message="no answer in 30 s",
        failed_at=timestamp_pb2.Timestamp(seconds=1_700_000_000),
        retry_count=3,
        failed_node_id="embed",
        original_topic="in.prod.embed",
        original_partition=2,
        original_offset=17,
        dlq_reprocess_count=1,
        quarantined=False,
        quarantined_at=timestamp_pb2.Timestamp(seconds=1),
    )


def test_a_reader_of_the_six_documented_fields_reads_a_dead_letter():
    letter = full_letter()
    read = reader(**SUBSET)["DlqMessage"].FromString(letter.SerializeToString())
    assert (read.stream.stream_id, read.error_type, read.error_message) == ("s1", "TIMEOUT", "no answer in 30 s")
    assert (read.failed_at.seconds, read.failed_node_id, read.original_topic) == (
        1_700_000_000,
        "embed",
        "in.prod.embed",
    )


def test_what_such_a_reader_does_not_know_survives_its_round_trip():
    letter = full_letter()
    through = reader(**SUBSET)["DlqMessage"].FromString(letter.SerializeToString()).SerializeToString()
    assert document_pb2.DlqMessage.FromString(through) == letter


def test_fields_of_other_versions_survive_ours():
    other = reader(PipeStream=[("stream_id", "string", 1), ("new", "bytes", 77)])["PipeStream"]
    ours = document_pb2.PipeStream.FromString(other(stream_id="s1", new=b"kept").SerializeToString())
    ours.hop_count += 1
    assert other.FromString(ours.SerializeToString()).new == b"kept"


def numbers(message) -> dict[str, int]:
    return {field.name: field.number for field in message.DESCRIPTOR.fields}


ORIGIN = {
    document_pb2.DlqMessage: """stream=1 error_type=2 error_message=3 failed_at=4 retry_count=5 failed_node_id=6
        original_topic=7 original_partition=8 original_offset=9 dlq_reprocess_count=10 quarantined=11
        quarantined_at=12""",
    graph_pb2.DlqConfig: """enabled=1 topic_override=2 max_retries=3 initial_backoff=4 max_backoff=5
        backoff_multiplier=6 include_payload=7""",
    document_pb2.PipeStream: """stream_id=1 metadata=2 document=3 document_ref=9 cluster_id=4 current_node_id=5
        hop_count=6 processing_path=7""",
    document_pb2.DocumentReference: "doc_id=1 graph_address_id=2 account_id=3",
    document_pb2.StreamMetadata: """source_id=2 created_at=3 last_processed_at=4 trace_id=5 history=6 stream_error=7
        context_params=8 datasource_id=9 account_id=10 entry_node_id=11 is_test=13 dry_run=14 graph_id=15
        graph_version=16 crawl_id=17""",
    document_pb2.StepExecutionRecord: """hop_number=1 node_id=2 service_instance_id=3 start_time=4 end_time=5 status=6
        error_info=8 attempted_target_node_id=9 module_id=11 graph_id=12 document_id=13 account_id=14 stream_id=15
        crawl_id=16""",
    document_pb2.ErrorData: """error_message=1 error_code=2 technical_details=3 originating_node_id=4
        attempted_target_node_id=5 timestamp=7""",
    graph_pb2.GraphNode: """node_id=1 name=3 module_id=5 custom_config=6 kafka_input_topic=10 dlq_config=15
        filter_conditions=18 save_on_error=19 kafka_partitions=20 consumer_slots=21""",
    graph_pb2.GraphEdge: """edge_id=1 from_node_id=2 to_node_id=3 condition=5 priority=6 transport_type=8 kafka_topic=9
        max_hops=10""",
    module_pb2.ProcessDataRequest: "document=1 config=2 metadata=3 is_test=6 dry_run=7",
    module_pb2.ProcessDataResponse: "success=1 output_doc=2 error_details=3 outcome=6",
    module_pb2.ProcessConfiguration: "json_config=1 config_params=2",
}


@pytest.mark.parametrize(("message", "known"), ORIGIN.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_fields_have_the_numbers_that_pipestream_gave_them(message, known):
    expected = {name: int(number) for name, number in (pair.split("=") for pair in known.split())}
    ours = numbers(message)
    assert {name: ours.get(name) for name in expected} == expected
    assert all(number >= 20 for name, number in ours.items() if name not in expected)


@pytest.mark.parametrize("message", [document_pb2.DlqMessage, graph_pb2.DlqConfig])
def test_absent_and_zero_differ(message):
    without = [
        field.name for field in message.DESCRIPTOR.fields if not (field.has_presence or field.name == "retry_codes")
    ]
    assert without == []


def test_an_absent_number_is_not_a_zero_on_the_wire():
    assert not document_pb2.DlqMessage().HasField("retry_count")
    zero = document_pb2.DlqMessage.FromString(document_pb2.DlqMessage(retry_count=0).SerializeToString())
    assert zero.HasField("retry_count")


def test_every_verb_of_the_operators_has_a_call():
    verbs = {method.name for method in admin_pb2.DESCRIPTOR.services_by_name["PipelineAdminService"].methods}
    assert verbs >= {
        "ListNodes", "Peek", "Replay", "Pause", "Resume", "Drain", "Quarantine", "Readmit", "Trace", "Reload",
    }  # fmt: skip
    assert "ProcessNode" in {m.name for m in engine_pb2.DESCRIPTOR.services_by_name["PipelineEngineService"].methods}
