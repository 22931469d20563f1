"""Conditions on nodes and edges, as documents meet them."""

from __future__ import annotations

from tests.sources.pipeline.modules.scripted import serving
from tests.sources.pipeline.scene import running, until

from redrive.sources.pipeline.protos import document_pb2 as docs


async def test_a_node_whose_condition_is_false_is_skipped_and_says_so(scene):
    async with serving() as module:
        nodes = [{"id": "parse", "module": module.target, "when": 'document.type == "pdf"'},
                 {"id": "index", "module": module.target}]  # fmt: skip
        graph = scene.graph(*nodes, edges=[("parse", "index")])
        async with running(scene.pipeline(graph)):
            scene.send(graph, type="text")
            await until(lambda: len(scene.done()) == 1)
    [done] = scene.done()
    assert [step.status for step in done.history] == [docs.STEP_STATUS_SKIPPED, docs.STEP_STATUS_SUCCESS]
    assert [call.metadata.pipe_step_name for call in module.calls] == ["index"]


async def test_only_edges_whose_condition_holds_get_the_document(scene):
    async with serving() as module:
        nodes = [{"id": name, "module": module.target} for name in ("parse", "pdf", "rest")]
        edges = [("parse", "pdf", {"when": 'document.type == "pdf"'}), ("parse", "rest", {"priority": 1})]
        graph = scene.graph(*nodes, edges=edges)
        async with running(scene.pipeline(graph)):
            scene.send(graph, 2, type="pdf")
            await until(lambda: len(scene.done()) == 2)
    assert {tuple(done.processing_path) for done in scene.done()} == {("parse", "pdf")}


async def test_a_condition_that_comes_to_no_answer_sends_the_document_to_quarantine(scene):
    async with serving() as module:
        condition = 'document.attributes["lang"] == "de"'
        graph = scene.graph({"id": "parse", "module": module.target, "when": condition})
        async with running(scene.pipeline(graph)):
            scene.send(graph)
            await until(lambda: scene.committed("parse") == 1)
    [letter] = scene.quarantined("parse")
    assert letter.error_type == "CEL_EVAL_ERROR"
    assert not module.calls
