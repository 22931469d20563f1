"""What is in a document never reaches logs or metrics, however it fails."""

from __future__ import annotations

import logging

import grpc
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.sources.pipeline.modules.scripted import serving
from tests.sources.pipeline.scene import running, until

from redrive.sources.pipeline.admin.signals.prometheus import PipelineCollector
from redrive.sources.pipeline.protos.module_pb2 import ProcessDataResponse

MARK = "patient-4711"


async def echoing(request, context):
    """Fail in a way that the document names, and quote its body."""
    said = f"cannot read {request.document.body.decode()}"
    if request.document.type == "logical":
        return ProcessDataResponse(success=False, error_message=said)
    await context.abort(grpc.StatusCode[request.document.type], said)
    raise AssertionError  # abort raises


@pytest.mark.parametrize("kind", ["logical", "UNAVAILABLE", "INVALID_ARGUMENT", "PERMISSION_DENIED"])
async def test_a_failed_document_is_not_quoted_in_logs_and_metrics(scene, caplog, kind):
    caplog.set_level(logging.DEBUG)
    async with serving(echoing) as module:
        graph = scene.graph({"id": "parse", "module": module.target, "dlq": {"max_retries": 2}})
        pipeline = scene.pipeline(graph)
        async with running(pipeline):
            scene.stage.produce([{"value": MARK.encode(), "key": MARK.encode()}], topic=f"in.{scene.env}.parse")
            counts = pipeline.counts["parse"]
            await until(lambda: counts.quarantined)  # before a document holds the node, and nothing moves
            scene.send(graph, type=kind, body=MARK.encode())
            await until(lambda: module.calls and (counts.failures or counts.reasons[kind]))
            registry = CollectorRegistry()
            registry.register(PipelineCollector(pipeline))
            metrics = generate_latest(registry).decode()
    assert "redrive_pipeline_in_total" in metrics
    assert MARK not in metrics
    assert "went to quarantine" in caplog.text
    assert MARK not in caplog.text
