"""What a failed module call means: one table."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from redrive.core.classify import KAFKA, classify
from redrive.core.policy import RetryPolicy
from redrive.sources.pipeline.modules.failures import Remedy, failed_with, trouble_of

CODES = {code.name for code in grpc.StatusCode} - {"OK"}
RETRIED = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "UNKNOWN", "INTERNAL", "DATA_LOSS"}
HELD = {"PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED"}


def test_every_grpc_code_has_one_remedy():
    remedies = {code: trouble_of(code, "it said so").remedy for code in CODES}
    assert {code for code, remedy in remedies.items() if remedy is Remedy.RETRY} == RETRIED
    assert {code for code, remedy in remedies.items() if remedy is Remedy.HOLD} == HELD
    assert {code for code, remedy in remedies.items() if remedy is Remedy.QUARANTINE} == CODES - RETRIED - HELD


@pytest.mark.parametrize(
    ("code", "text", "word"),
    [
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", "TIMEOUT"),
        (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: Connection refused (111)",
            "CONNECTION_REFUSED",
        ),
        ("UNAVAILABLE", "Socket closed", "UNAVAILABLE"),
        ("UNAVAILABLE", "Received http2 header with status: 503", "UNAVAILABLE"),
        ("RESOURCE_EXHAUSTED", "too many requests", "RESOURCE_EXHAUSTED"),
        ("INVALID_ARGUMENT", "no such field", "INVALID_ARGUMENT"),
        ("NOT_FOUND", "", "NOT_FOUND"),
    ],
)
def test_the_word_for_error_type_comes_from_one_table(code, text, word):
    assert trouble_of(code, text).word == word


@pytest.mark.parametrize(
    "text",
    [
        "CLIENT: Received message larger than max (104857611 vs. 4194304)",
        "SERVER: Sent message larger than max (5 vs. 4)",
    ],
)
def test_a_message_larger_than_max_is_no_infrastructure_failure(text):
    trouble = trouble_of("RESOURCE_EXHAUSTED", text)
    assert (trouble.remedy, trouble.word) == (Remedy.QUARANTINE, "MESSAGE_TOO_LARGE")


def test_a_503_of_a_proxy_is_retried_whatever_code_it_comes_with():
    assert trouble_of("CANCELLED", "Received http2 header with status: 503").remedy is Remedy.RETRY
    assert trouble_of("CANCELLED", "the module gave up").remedy is Remedy.QUARANTINE


def test_a_cancelled_call_names_the_way_out():
    assert "add CANCELLED to `retry_codes` of the node" in trouble_of("CANCELLED", "the server stops").text
    assert trouble_of("CANCELLED", "the server stops", retry_codes=["CANCELLED"]).text == "the server stops"
    assert trouble_of("INVALID_ARGUMENT", "no").text == "no"


def test_a_node_has_its_own_retry_codes():
    own = {"NOT_FOUND", "PERMISSION_DENIED"}
    assert trouble_of("NOT_FOUND", "", retry_codes=own).remedy is Remedy.RETRY
    assert trouble_of("PERMISSION_DENIED", "", retry_codes=own).remedy is Remedy.RETRY
    assert trouble_of("UNAVAILABLE", "", retry_codes=own).remedy is Remedy.QUARANTINE


def details(seconds: float) -> tuple[str, bytes]:
    info = AnyMessage()
    info.Pack(RetryInfo(retry_delay=Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))))
    return "grpc-status-details-bin", Status(code=14, details=[info]).SerializeToString()


@pytest.mark.parametrize(
    ("trailers", "wait"),
    [
        ([], None),
        ([("grpc-retry-pushback-ms", "1500")], 1.5),
        ([details(2.5)], 2.5),
        ([details(2.5), ("grpc-retry-pushback-ms", "4000")], 4.0),
        ([("grpc-status-details-bin", b"\xff\xff nonsense")], None),
    ],
)
def test_what_a_module_asks_for_is_the_floor_of_the_wait(trailers, wait):
    trouble = trouble_of("UNAVAILABLE", "busy", trailers)
    assert trouble.wait == wait
    assert classify(failed_with(trouble), RetryPolicy.IMMEDIATE, KAFKA).retry_after == wait


@pytest.mark.parametrize("said", ["-1", "soon", "", "99999999999999999999"])
def test_a_pushback_that_is_no_span_ends_the_calls_as_grpc_has_it(said):
    trouble = trouble_of("UNAVAILABLE", "no", [("grpc-retry-pushback-ms", said)])
    assert trouble.is_final
    assert classify(failed_with(trouble), RetryPolicy.IMMEDIATE, KAFKA).terminal


def test_no_text_of_a_module_can_block_the_way_to_the_dlq():
    trouble = trouble_of("UNKNOWN", "\x00\ud800" + "x" * 1_000_000)
    assert len(trouble.text) <= 2000
    assert trouble.text.isprintable()
