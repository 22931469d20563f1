"""The repository of bodies goes away while documents are hydrated or saved, and comes back."""

from __future__ import annotations

import asyncio
import urllib.request

import pytest
from moto.server import ThreadedMotoServer
from tests.servers.ports import free_port
from tests.sources.pipeline.modules.scripted import passed_on, serving
from tests.sources.pipeline.scene import running, until

from redrive.sources.pipeline.engine.sending import send_documents
from redrive.sources.pipeline.protos.document_pb2 import PipeDoc

KEYS = {"region": "us-east-1", "access_key_id": "testing", "secret_access_key": "testing"}
LARGE = bytes(range(256)) * 10


class ObjectStore:
    """A real S3 server that a test stops; what it holds is there when it starts again."""

    def __init__(self) -> None:
        self._port = free_port()
        self.endpoint = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self._port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def storage(self, **options):
        place = {"url": "s3://documents", "options": {**KEYS, "endpoint": self.endpoint}, "inline_limit": 100}
        return {**place, **options}


@pytest.fixture
def objects():
    store = ObjectStore()
    store.start()
    request = urllib.request.Request(f"{store.endpoint}/documents", method="PUT")  # noqa: S310 - loopback
    urllib.request.urlopen(request).close()  # noqa: S310 - loopback
    yield store
    store.stop()


class Stalling:
    """A module that waits, at first, until it is told to go on: meanwhile the repository goes away."""

    def __init__(self) -> None:
        self.called, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, request, _context):
        self.called.set()
        await self.go_on.wait()
        return passed_on(request)


async def test_a_body_that_cannot_be_saved_or_hydrated_waits_for_the_repository_and_the_document_goes_on(
    scene, objects
):
    stalling = Stalling()
    patient = {"max_retries": 100, "initial_backoff": 0.05, "max_backoff": 0.05}
    async with serving(stalling, lambda request, _context: passed_on(request)) as (slow, quick):
        nodes = [{"id": "parse", "module": slow.target, "dlq": patient},
                 {"id": "index", "module": quick.target, "dlq": patient}]  # fmt: skip
        graph = scene.graph(*nodes, edges=[("parse", "index")], documents=objects.storage())
        pipeline = scene.pipeline(graph)
        async with running(pipeline):
            await send_documents(graph, scene.kafka(), [PipeDoc(doc_id="a", body=LARGE)])
            await stalling.called.wait()
            objects.stop()
            stalling.go_on.set()  # its answer cannot be saved; the next try cannot even load the document
            await until(lambda: pipeline.counts["parse"].reasons["REPOSITORY_AWAY"] >= 2)
            assert (scene.committed("parse"), scene.dead("parse"), scene.quarantined("parse")) == (0, [], [])
            objects.start()
            await until(lambda: len(scene.done()) == 1)
    [done] = scene.done()
    assert [step.node_id for step in done.history] == ["parse", "index"]
    assert quick.calls[0].document.body == LARGE


@pytest.mark.parametrize("keep_days", [None, 1], ids=["for-ever", "by-age"])
async def test_after_its_last_call_a_document_without_its_repository_is_a_dead_letter_that_a_replay_brings_to_the_end(
    scene, objects, keep_days
):
    stalling = Stalling()
    async with serving(stalling) as module:
        graph = scene.graph({"id": "parse", "module": module.target, "dlq": {"max_retries": 2}},
                            documents=objects.storage(keep_days=keep_days))  # fmt: skip
        pipeline = scene.pipeline(graph)
        async with running(pipeline):
            await send_documents(graph, scene.kafka(), [PipeDoc(doc_id="a", body=LARGE)])
            await stalling.called.wait()
            objects.stop()
            stalling.go_on.set()
            await until(lambda: pipeline.counts["parse"].reasons["REPOSITORY_AWAY"] == 2)
            if keep_days is not None:  # its body must be noted as needed first: the letter waits for that
                assert (scene.committed("parse"), scene.dead("parse")) == (0, [])
                objects.start()
            await until(lambda: scene.committed("parse") == 1)
            [letter] = scene.dead("parse")
            assert (letter.error_type, letter.retry_count) == ("REPOSITORY_AWAY", 2)
            assert letter.stream.document_ref.key
            if keep_days is None:
                objects.start()
            scene.put([letter.stream], f"in.{scene.env}.parse")  # as a replay does
            await until(lambda: len(scene.done()) == 1)
    assert module.calls[-1].document.body == LARGE
