"""kill -9 at every step of an engine, and of modules: every branch is accounted for."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import grpc
import msgspec
import pytest
from tests.servers.ports import free_port
from tests.sources.kafka.stage import LIMIT
from tests.sources.pipeline.engine.one_engine import EXACTLY_ONCE
from tests.sources.pipeline.modules.scripted import passed_on, serving
from tests.sources.pipeline.scene import running, until

from redrive import failpoints
from redrive.sources.pipeline.admin.lanes.jobs import replay_job
from redrive.sources.pipeline.admin.lanes.lane_job import carry_out
from redrive.sources.pipeline.admin.lanes.letter_choice import EVERY_LETTER
from redrive.sources.pipeline.graph.model import RETRY_CODES

ROOT = Path(__file__).parents[4]
STEPS = [
    "kafka.after_poll",
    "pipeline.before_call",
    "pipeline.after_call",
    "pipeline.before_outputs",
    "pipeline.after_outputs",
    "kafka.before_commit",
    "kafka.after_commit",
]
TRANSACTION_STEPS = [
    "kafka.after_poll",
    "pipeline.before_call",
    "pipeline.after_call",
    "kafka.tx_begun",
    "kafka.tx_produced",
    "kafka.tx_before_commit",
    "kafka.tx_after_commit",
]
DOCUMENTS = 40
BRANCHES = {"1of2", "2of2"}


def start(scene, graph, failpoints="", mode=""):
    """Start an engine in a process of its own."""
    text = msgspec.json.encode(graph).decode()
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "REDRIVE_FAILPOINTS": failpoints}
    words = [sys.executable, "-m", "tests.sources.pipeline.engine.one_engine", scene.bootstrap, text, mode]
    return subprocess.Popen(words, env=env, cwd=ROOT)


def five_nodes(scene, module):
    nodes = [{"id": name, "module": module.target} for name in ("parse", "left", "right", "join", "index")]
    edges = [("parse", "left"), ("parse", "right"), ("left", "join", {"transport": "grpc"}), ("right", "join"),
             ("join", "index")]  # fmt: skip
    return scene.graph(*nodes, edges=edges)


def accounted(scene):
    return {(done.stream_id, done.branch) for done in scene.done()}


def everything(number):
    return {(f"stream-{n}", branch) for n in range(number) for branch in BRANCHES}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
async def test_an_engine_killed_at_any_step_loses_no_branch(scene, step):
    async with serving() as module:
        graph = five_nodes(scene, module)
        async with running(scene.pipeline(graph)):
            pass  # makes the topics
        scene.send(graph, DOCUMENTS)
        dying = start(scene, graph, f"{step}=kill@7")
        assert await asyncio.to_thread(dying.wait, LIMIT) == -signal.SIGKILL
        async with running(scene.pipeline(graph)):
            await until(lambda: accounted(scene) == everything(DOCUMENTS))
    for done in scene.done():
        side = "left" if done.branch == "1of2" else "right"
        assert [each.node_id for each in done.history] == ["parse", side, "join", "index"]
    repeats = sum(count - 1 for count in Counter((d.stream_id, d.branch) for d in scene.done()).values())
    print(f"{step}: {repeats} of {2 * DOCUMENTS} branches ended twice")


async def by_number(request, context):
    """Let every tenth document die at `left`, and another tenth go to quarantine at `right`."""
    number, node = int(request.document.doc_id.rpartition("-")[2]), request.metadata.pipe_step_name
    if node == "left" and number % 10 == 3:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "down")
    if node == "right" and number % 10 == 7:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no pdf")
    return passed_on(request)


@pytest.mark.slow
async def test_in_the_exactly_once_mode_an_engine_killed_at_every_step_sends_each_branch_once(scene):
    async with serving(by_number) as module:
        graph = five_nodes(scene, module)
        async with running(scene.pipeline(graph)):
            pass  # makes the topics
        scene.send(graph, DOCUMENTS)
        for number, step in enumerate(TRANSACTION_STEPS):
            dying = start(scene, graph, f"{step}=kill@{2 + number % 3}", EXACTLY_ONCE)
            assert await asyncio.to_thread(dying.wait, LIMIT) == -signal.SIGKILL, step
            scene.put([_numbered(each, DOCUMENTS + 10 * number) for each in scene.streams(graph, 10)],
                      f"in.{scene.env}.parse")  # fmt: skip
        sent = DOCUMENTS + 10 * len(TRANSACTION_STEPS)
        async with running(scene.pipeline(graph, exactly_once=True)):
            await until(lambda: accounted(scene) | put_aside(scene) == everything(sent))
    ends = Counter((done.stream_id, done.branch) for done in scene.done())
    lanes = [("left", scene.dead), ("right", scene.quarantined)]
    aside = Counter((each.stream.stream_id, each.stream.branch) for node, read in lanes for each in read(node))
    assert set(ends.values()) == set(aside.values()) == {1}  # as a reader of committed messages sees it
    assert len(aside) == sent // 5
    assert not ends.keys() & aside.keys()


def put_aside(scene):
    found = [*scene.dead("left"), *scene.quarantined("right")]
    return {(each.stream.stream_id, each.stream.branch) for each in found}


def _numbered(stream, first):
    number = first + int(stream.stream_id.rpartition("-")[2])
    stream.stream_id, stream.document.doc_id = f"stream-{number}", f"doc-{number}"
    return stream


class ModuleProcess:
    """A module in a process of its own: while the file FIRST exists it hangs, and then it answers."""

    def __init__(self, folder) -> None:
        self.first, self.called, self.port = folder / "first", folder / "called", free_port()

    def start(self) -> None:
        env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "GRPC_VERBOSITY": "NONE"}
        words = [sys.executable, "-c", HANGS_AT_FIRST, str(self.port), str(self.first), str(self.called)]
        self._process = subprocess.Popen(words, env=env, cwd=ROOT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


HANGS_AT_FIRST = """
import asyncio, pathlib, sys
from redrive.sources.pipeline import module

async def echo(document):
    if pathlib.Path(sys.argv[2]).exists():
        pathlib.Path(sys.argv[3]).touch()
        await asyncio.sleep(600)
    return document

asyncio.run(module(echo).serve("127.0.0.1:" + sys.argv[1]))
"""


async def test_a_module_killed_mid_call_is_called_again(scene, tmp_path):
    module = ModuleProcess(tmp_path)
    module.first.touch()
    patient = {"max_retries": 1000, "initial_backoff": 0.05, "max_backoff": 0.05}
    graph = scene.graph({"id": "parse", "module": f"127.0.0.1:{module.port}", "dlq": patient})
    module.start()
    try:
        async with running(scene.pipeline(graph)):
            scene.send(graph)
            await until(module.called.exists)
            module.kill()
            module.first.unlink()
            module.start()
            await until(lambda: len(scene.done()) == 1)
    finally:
        module.kill()
    assert scene.done()[0].history[0].calls > 1
    assert scene.dead("parse") == []


async def test_a_module_that_restarts_during_a_replay_gets_the_rest_after_it(scene):
    documents, stopping = 20, asyncio.Event()

    async def down(_request, context):
        await context.abort(grpc.StatusCode.UNAVAILABLE, "down")

    def heals(request, _context):
        if len(module.calls) == documents // 2:
            stopping.set()
        return passed_on(request)

    async with serving(down) as module:
        patient = {"max_retries": 100, "initial_backoff": 0.05, "max_backoff": 0.05}
        codes = [*RETRY_CODES, "CANCELLED"]  # a server that stops cancels calls that it has not begun
        node = {"id": "parse", "module": module.target, "concurrency": 2, "retry_codes": codes}
        graph = scene.graph({**node, "dlq": {"max_retries": 1}})
        healed = scene.graph({**node, "dlq": patient}, version=2)
        pipeline = scene.pipeline(graph)
        async with running(pipeline):
            scene.send(graph, documents)
            await until(lambda: len(scene.dead("parse")) == documents)
            module.script, module.calls = heals, []
            await pipeline.reload(healed)
            job = replay_job(healed, healed.nodes[0], EVERY_LETTER)
            replaying = asyncio.create_task(asyncio.to_thread(lambda: list(carry_out(scene.kafka(), job))))
            await stopping.wait()
            await module.stop(grace=30)
            await module.start(module.port)
            assert (await replaying)[-1].sent == documents
            await until(lambda: len({done.stream_id for done in scene.done()}) == documents)
    assert len(scene.dead("parse")) == documents  # none died again
    assert len(scene.done()) == documents


async def test_a_replay_that_dies_before_its_note_sends_those_letters_once_more_and_loses_none(scene, monkeypatch):
    graph = scene.graph({"id": "parse", "module": "127.0.0.1:1", "dlq": {"max_retries": 1}})
    async with running(scene.pipeline(graph)):
        scene.send(graph, 5)
        await until(lambda: len(scene.dead("parse")) == 5)
    job = replay_job(graph, graph.nodes[0], EVERY_LETTER)
    monkeypatch.setitem(failpoints.ACTIVE, "pipeline.replay_sent", ["raise", 1])
    with pytest.raises(failpoints.Injected):
        await asyncio.to_thread(lambda: list(carry_out(scene.kafka(), job)))

    def replays() -> Counter[str]:
        return Counter(stream.replay_id for stream in scene.outputs(f"in.{scene.env}.parse") if stream.replay_id)

    sent_before = replays()  # a batch: what the broker had at hand for the first read, so up to five
    assert 1 <= len(sent_before) == sent_before.total() <= 5
    assert [each.sent for each in await asyncio.to_thread(lambda: list(carry_out(scene.kafka(), job)))][-1] == 5
    assert [each.sent for each in await asyncio.to_thread(lambda: list(carry_out(scene.kafka(), job)))][-1] == 0
    again = replays()
    assert len(again) == 5
    assert {name: count - 1 for name, count in again.items() if count > 1} == sent_before  # known by their replay_id


async def test_a_module_that_raises_is_retried_and_then_dead_lettered(scene):
    async with serving(lambda _request, _context: 1 / 0) as module:
        graph = scene.graph({"id": "parse", "module": module.target})
        async with running(scene.pipeline(graph)):
            scene.send(graph)
            await until(lambda: scene.committed("parse") == 1)
    assert [(letter.error_type, letter.retry_count) for letter in scene.dead("parse")] == [("UNKNOWN", 3)]
