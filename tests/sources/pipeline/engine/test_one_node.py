"""A node: its module, its history, its retries, its DLQ, its quarantine."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from tests.sources.pipeline.modules.scripted import passed_on, serving
from tests.sources.pipeline.scene import running, until

from redrive.sources.pipeline.graph.model import RETRY_CODES
from redrive.sources.pipeline.protos import document_pb2 as docs
from redrive.sources.pipeline.protos.document_pb2 import PipeDoc
from redrive.sources.pipeline.protos.module_pb2 import (
    OUTCOME_FAILURE,
    OUTCOME_PARTIAL,
    OUTCOME_SKIPPED,
    ProcessDataResponse,
)

PART = PipeDoc(type="part")


def refusing(code, text="it said no", *, times=10**9):
    """Return a script that refuses the first *times* calls."""
    left = times

    async def script(request, context):
        nonlocal left
        left -= 1
        if left >= 0:
            await context.abort(code, text)
        return passed_on(request)

    return script


async def test_a_document_goes_through_a_node_and_its_history_says_so(scene):
    async with serving() as module:
        graph = scene.graph({"id": "parse", "module": module.target, "output": f"out.{scene.env}"})
        async with running(scene.pipeline(graph)):
            scene.send(graph, type="pdf", body=b"\x00bytes")
            await until(lambda: scene.committed("parse") == 1)
    [done] = scene.done()
    assert (done.stream_id, done.doc_id, list(done.processing_path)) == ("stream-0", "doc-0", ["parse"])
    assert done.outcome == docs.DOCUMENT_OUTCOME_SUCCEEDED
    [step] = done.history
    assert (step.node_id, step.status, step.calls, step.hop_number) == ("parse", docs.STEP_STATUS_SUCCESS, 1, 1)
    assert step.end_time.ToMilliseconds() >= step.start_time.ToMilliseconds() > 1_700_000_000_000
    [stream] = scene.outputs(f"out.{scene.env}")
    assert stream.document.body == b"\x00bytes"
    assert module.calls[0].metadata.pipe_step_name == "parse"


@pytest.mark.parametrize(
    ("answer", "status", "goes_on"),
    [
        (ProcessDataResponse(success=False, error_message="no pdf"), docs.STEP_STATUS_FAILURE, "input"),
        (ProcessDataResponse(outcome=OUTCOME_FAILURE, output_doc=PART), docs.STEP_STATUS_FAILURE, "input"),
        (ProcessDataResponse(outcome=OUTCOME_SKIPPED, output_doc=PART), docs.STEP_STATUS_SKIPPED, "input"),
        (ProcessDataResponse(outcome=OUTCOME_PARTIAL, output_doc=PART), docs.STEP_STATUS_PARTIAL, "output"),
        (ProcessDataResponse(success=True, output_doc=PART), docs.STEP_STATUS_SUCCESS, "output"),
    ],
)  # fmt: skip
async def test_what_a_module_answers_decides_which_document_goes_on(scene, answer, status, goes_on):
    async with serving(lambda _request, _context: answer) as module:
        graph = scene.graph({"id": "parse", "module": module.target, "output": f"out.{scene.env}"})
        async with running(scene.pipeline(graph)):
            scene.send(graph, type="pdf")
            await until(lambda: scene.committed("parse") == 1)
    [stream] = scene.outputs(f"out.{scene.env}")
    assert stream.document.type == ("pdf" if goes_on == "input" else "part")
    assert stream.document.doc_id == "doc-0"
    assert [step.status for step in stream.metadata.history] == [status]
    assert len(module.calls) == 1
    assert scene.dead("parse") == scene.quarantined("parse") == []


async def test_a_module_that_heals_is_called_again_and_nothing_is_dead(scene):
    async with serving(refusing(grpc.StatusCode.UNAVAILABLE, times=2)) as module:
        graph = scene.graph({"id": "parse", "module": module.target})
        async with running(scene.pipeline(graph)):
            scene.send(graph)
            await until(lambda: scene.committed("parse") == 1)
    [done] = scene.done()
    assert [step.calls for step in done.history] == [3]
    assert [call.metadata.call for call in module.calls] == [1, 2, 3]
    assert len({call.metadata.idempotency_key for call in module.calls}) == 1
    assert scene.dead("parse") == []


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_after_the_last_call_the_document_is_confirmed_in_the_dlq_and_then_committed(scene, exactly_once):
    async with serving(refusing(grpc.StatusCode.UNAVAILABLE, "we are closed")) as module:
        graph = scene.graph({"id": "parse", "module": module.target, "dlq": {"max_retries": 4}})
        async with running(scene.pipeline(graph, exactly_once=exactly_once)):
            scene.send(graph, body=b"kept")
            await until(lambda: scene.committed("parse") == 1)
    [letter] = scene.dead("parse")
    assert len(module.calls) == letter.retry_count == 4
    assert (letter.error_type, letter.error_message) == ("UNAVAILABLE", "we are closed")
    assert (letter.failed_node_id, letter.original_topic) == ("parse", f"in.{scene.env}.parse")
    assert (letter.original_partition in {0, 1}, letter.original_offset, letter.dlq_reprocess_count) == (True, 0, 0)
    assert letter.stream.document.body == b"kept"
    assert letter.failed_at.ToMilliseconds() > 1_700_000_000_000
    [message] = scene.messages(f"dlq.{scene.env}.parse")
    assert message.key() == b"stream-0"
    assert scene.done() == []


async def test_a_module_that_hangs_is_called_again_at_its_deadline_and_then_dead_lettered(scene):
    async with serving(lambda _request, _context: asyncio.sleep(60)) as module:
        graph = scene.graph({"id": "parse", "module": module.target, "timeout": 0.5, "dlq": {"max_retries": 2}})
        async with running(scene.pipeline(graph)):
            scene.send(graph)
            await until(lambda: scene.committed("parse") == 1)
    [letter] = scene.dead("parse")
    assert (letter.error_type, letter.retry_count, len(module.calls)) == ("TIMEOUT", 2, 2)


@pytest.mark.parametrize(
    ("script", "word"),
    [
        (refusing(grpc.StatusCode.INVALID_ARGUMENT), "INVALID_ARGUMENT"),
        (refusing(grpc.StatusCode.NOT_FOUND), "NOT_FOUND"),
        (lambda _request, _context: b"\xff\xff\xff nonsense", "UNDECODABLE_ANSWER"),
        (lambda _request, _context: b"\x12" + bytes(3_000_000), "MESSAGE_TOO_LARGE"),
        (lambda _request, _context: b"\x12" + bytes(100_000_000), "MESSAGE_TOO_LARGE"),
    ],
)
async def test_what_no_call_can_help_goes_to_quarantine_with_the_reason(scene, script, word):
    async with serving(script) as module:
        graph = scene.graph({"id": "parse", "module": module.target, "max_message_bytes": 2_000_000})
        async with running(scene.pipeline(graph)):
            scene.send(graph, body=b"kept")
            await until(lambda: scene.committed("parse") == 1)
    [letter] = scene.quarantined("parse")
    assert (letter.error_type, letter.quarantined, letter.retry_count) == (word, True, 1)
    assert letter.quarantined_at.ToMilliseconds() > 1_700_000_000_000
    assert letter.stream.document.body == b"kept"
    assert [each.key() for each in scene.messages(f"quarantine.{scene.env}.parse")] == [b"stream-0"]
    assert scene.dead("parse") == []
    assert len(module.calls) == 1


async def test_a_call_that_a_stopping_module_cancelled_goes_to_quarantine_and_the_reason_names_the_way_out(scene):
    async with serving(refusing(grpc.StatusCode.CANCELLED, "the server stops", times=1)) as module:
        graph = scene.graph({"id": "parse", "module": module.target})
        async with running(scene.pipeline(graph)):
            scene.send(graph)
            await until(lambda: scene.committed("parse") == 1)
    [letter] = scene.quarantined("parse")
    assert letter.error_type == "CANCELLED"
    assert "add CANCELLED to `retry_codes` of the node, and readmit the document" in letter.error_message


async def test_a_cancelled_call_is_tried_again_where_the_node_says_so(scene):
    async with serving(refusing(grpc.StatusCode.CANCELLED, times=1)) as module:
        codes = [*RETRY_CODES, "CANCELLED"]
        graph = scene.graph({"id": "parse", "module": module.target, "retry_codes": codes})
        async with running(scene.pipeline(graph)):
            scene.send(graph)
            await until(lambda: len(scene.done()) == 1)
    assert [step.calls for step in scene.done()[0].history] == [2]
    assert scene.quarantined("parse") == []


@pytest.mark.parametrize("value", [b"\xff\xffnot protobuf", b"", None])
async def test_a_record_that_is_no_document_goes_to_quarantine_byte_by_byte(scene, value):
    async with serving() as module:
        graph = scene.graph({"id": "parse", "module": module.target})
        async with running(scene.pipeline(graph)):
            scene.stage.produce([{"value": value, "key": b"k"}], topic=f"in.{scene.env}.parse")
            await until(lambda: scene.committed("parse") == 1)
    [letter] = scene.quarantined("parse")
    assert (letter.error_type, letter.undecoded) == ("UNDECODABLE_RECORD", value or b"")
    assert not module.calls


async def test_a_document_for_a_node_that_the_graph_does_not_have_goes_to_quarantine(scene):
    async with serving() as module:
        graph = scene.graph({"id": "parse", "module": module.target})
        [stream] = scene.streams(graph, 1)
        stream.current_node_id = "gone"
        async with running(scene.pipeline(graph)):
            scene.put([stream], f"in.{scene.env}.parse")
            await until(lambda: scene.committed("parse") == 1)
    assert [letter.error_type for letter in scene.quarantined("parse")] == ["UNKNOWN_NODE"]


async def test_a_document_that_failed_after_all_its_replays_goes_to_quarantine(scene):
    async with serving(refusing(grpc.StatusCode.UNAVAILABLE)) as module:
        graph = scene.graph({"id": "parse", "module": module.target, "dlq": {"max_retries": 2}})
        streams = scene.streams(graph, 2)
        streams[0].reprocess_count, streams[1].reprocess_count = 3, 2
        async with running(scene.pipeline(graph)):
            scene.put(streams, f"in.{scene.env}.parse")
            await until(lambda: scene.committed("parse") == 2)
    [letter] = scene.quarantined("parse")
    assert (letter.error_type, letter.stream.stream_id) == ("TOO_MANY_REPLAYS", "stream-0")
    assert (letter.dlq_reprocess_count, letter.retry_count) == (3, 2)
    [letter] = scene.dead("parse")
    assert (letter.stream.stream_id, letter.dlq_reprocess_count) == ("stream-1", 2)


async def test_a_node_whose_dlq_is_off_drops_the_document_and_counts_it(scene, caplog):
    async with serving(refusing(grpc.StatusCode.UNAVAILABLE)) as module:
        graph = scene.graph({"id": "parse", "module": module.target, "dlq": {"enabled": False}})
        pipeline = scene.pipeline(graph)
        async with running(pipeline):
            scene.send(graph, body=b"secret")
            await until(lambda: scene.committed("parse") == 1)
    assert (pipeline.counts["parse"].dropped, pipeline.counts["parse"].dead) == (1, 0)
    assert not scene.has(f"dlq.{scene.env}.parse")
    assert scene.done() == []
    assert "is dropped, because its DLQ is off" in caplog.text
    assert "secret" not in caplog.text
