"""Bodies that travel by reference, and what a repository that is away means."""

from __future__ import annotations

from tests.sources.pipeline.modules.scripted import serving
from tests.sources.pipeline.scene import running, until

from redrive.sources.pipeline.engine.sending import send_documents
from redrive.sources.pipeline.protos.document_pb2 import PipeDoc

LARGE = bytes(range(256)) * 40


async def test_a_large_body_travels_by_reference_and_reaches_every_module(scene, tmp_path):
    async with serving() as module:
        nodes = [{"id": name, "module": module.target} for name in ("parse", "index")]
        storage = {"url": f"file://{tmp_path}/bodies", "inline_limit": 1000}
        graph = scene.graph(*nodes, edges=[("parse", "index")], documents=storage)
        async with running(scene.pipeline(graph)):
            await send_documents(graph, scene.kafka(), [PipeDoc(doc_id="a", body=LARGE, type="pdf")])
            await until(lambda: len(scene.done()) == 1)
    assert [call.document.body for call in module.calls] == [LARGE, LARGE]
    [stream] = scene.outputs(f"in.{scene.env}.index")
    assert stream.document_ref.document.type == "pdf"
    assert stream.document_ref.size == len(LARGE)
    assert len(stream.SerializeToString()) < 1000


async def test_a_document_whose_body_is_gone_goes_to_quarantine(scene, tmp_path):
    async with serving() as module:
        storage = {"url": f"file://{tmp_path}/bodies", "inline_limit": 10}
        graph = scene.graph({"id": "parse", "module": module.target}, documents=storage)
        first = scene.pipeline(graph)
        async with running(first):
            pass
        await send_documents(graph, scene.kafka(), [PipeDoc(doc_id="a", body=LARGE)])
        for file in (tmp_path / "bodies" / "bodies").rglob("*"):
            if file.is_file():
                file.unlink()
        async with running(scene.pipeline(graph)):
            await until(lambda: len(scene.quarantined("parse")) == 1)
    assert scene.quarantined("parse")[0].error_type == "DOCUMENT_MISSING"
    assert not module.calls
