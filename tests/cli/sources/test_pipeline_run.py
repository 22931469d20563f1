"""`redrive pipeline run` and `send`, as an operator starts them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import closing
from itertools import pairwise

import msgspec
import pytest
from tests.servers.ports import free_port
from tests.sources.kafka.shared import shared
from tests.sources.kafka.stage import LIMIT
from tests.sources.pipeline.modules.scripted import serving
from tests.sources.pipeline.scene import Scene, until

from redrive.sources.pipeline import load_graph
from redrive.stores.sqlite import SqliteStore

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(request):
    with shared(request.config) as running:
        yield running


@pytest.fixture
def scene(broker, request):
    with closing(Scene(broker.bootstrap, request.node.name)) as made:
        yield made
        made.stage.clear(made.env)


def command(scene, *words, **options):
    env = os.environ | {"KAFKA_BOOTSTRAP_SERVERS": scene.bootstrap, "KAFKA_COMMIT_INTERVAL_MS": "50"}
    return subprocess.Popen(
        [sys.executable, "-m", "redrive.cli", "pipeline", *words], env=env, stdout=subprocess.PIPE, text=True, **options
    )


def write(path, scene, module, nodes=("parse",)):
    ways = [{"from": one, "to": two} for one, two in pairwise(nodes)]
    named = [{"id": name, "module": module.target} for name in nodes]
    path.write_bytes(msgspec.json.encode({"env": scene.env, "nodes": named, "edges": ways}))


async def said(process):
    return await asyncio.to_thread(lambda: msgspec.json.decode(process.communicate(timeout=LIMIT)[0]))


async def make_store(folder, monkeypatch):
    monkeypatch.setenv("REDRIVE_URL", f"sqlite:///{folder}/letters.db")
    made = await asyncio.create_subprocess_exec(sys.executable, "-m", "redrive.cli", "migrate")
    assert await made.wait() == 0


async def audited(folder):
    store = SqliteStore(folder / "letters.db")
    await store.open()
    try:
        return await store.audit()
    finally:
        await store.close()


async def answers(process):
    text, _ = await asyncio.to_thread(process.communicate, timeout=LIMIT)
    return msgspec.json.decode("[" + text.strip().replace("\n}\n{", "\n},\n{") + "]")


async def test_a_graph_runs_takes_files_reloads_and_stops_as_it_is_told(scene, tmp_path, monkeypatch):
    await make_store(tmp_path, monkeypatch)
    graph, file, errors = tmp_path / "graph.json", tmp_path / "report.pdf", tmp_path / "errors"
    file.write_bytes(b"%PDF")
    async with serving() as module:
        write(graph, scene, module)
        with errors.open("w") as stderr:
            engine = command(scene, "run", str(graph), "--json", stderr=stderr)
        try:
            await until(lambda: scene.has(f"in.{scene.env}.parse"))
            sent = await said(command(scene, "send", str(graph), str(file), "--json"))
            place = {name: sent["sent"][0][name] for name in ("topic", "offset", "doc_id")}
            assert place == {"topic": f"in.{scene.env}.parse", "offset": 0, "doc_id": "report.pdf"}
            await until(lambda: [done.stream_id for done in scene.done()] == [sent["sent"][0]["stream_id"]])
            write(graph, scene, module, ("parse", "index"))
            engine.send_signal(signal.SIGHUP)
            await until(lambda: scene.has(f"in.{scene.env}.index"))
            await said(command(scene, "send", str(graph), str(file), "--json"))
            await until(lambda: len(scene.done()) == 2)
            graph.write_text("{nonsense")  # reported, and the old graph goes on
            engine.send_signal(signal.SIGHUP)
            write(tmp_path / "good.json", scene, module, ("parse", "index"))
            await said(command(scene, "send", str(tmp_path / "good.json"), str(file), "--json"))
            await until(lambda: len(scene.done()) == 3)
            engine.send_signal(signal.SIGTERM)
            ended = await said(engine)
        finally:
            engine.kill()
            engine.wait()
    assert {tuple(done.processing_path) for done in scene.done()} == {("parse",), ("parse", "index")}
    assert (module.calls[0].document.type, module.calls[0].document.body) == ("pdf", b"%PDF")
    assert ended["nodes"]["parse"]["succeeded"] == 3
    assert engine.returncode == 0
    assert "the graph goes on as it was" in errors.read_text()
    [act] = await audited(tmp_path)  # the graph that could not run is not there
    version = load_graph(tmp_path / "good.json").version
    assert (act.by, act.verb, act.target) == ("SIGHUP", "pipeline reload", f"pipeline version {version}")
    assert "health" not in errors.read_text()  # the module has no health service, which is no error


async def test_an_operator_finds_the_dead_letter_pauses_replays_and_traces_it(scene, tmp_path, monkeypatch):
    await make_store(tmp_path, monkeypatch)
    graph, file, address = tmp_path / "graph.json", tmp_path / "report.pdf", f"127.0.0.1:{free_port()}"
    file.write_bytes(b"%PDF")
    node = {"id": "parse", "module": "127.0.0.1:1", "dlq": {"max_retries": 1}}
    graph.write_bytes(msgspec.json.encode({"env": scene.env, "nodes": [node]}))
    engine = command(scene, "run", str(graph), "--admin", address, "--json")

    async def ask(*words):
        return await said(command(scene, *words, "--engine", address, "--json"))

    try:
        await until(lambda: scene.has(f"in.{scene.env}.parse"))
        sent = await said(command(scene, "send", str(graph), str(file), "--json"))
        stream = sent["sent"][0]["stream_id"]
        await until(lambda: len(scene.dead("parse")) == 1)
        assert [(each["node_id"], each["dlq_depth"]) for each in (await ask("nodes"))["nodes"]] == [("parse", "1")]
        looks = await answers(command(scene, "top", "--engine", address, "--count", "2", "--interval", "0.1", "--json"))
        assert [each["nodes"][0]["dlq_depth"] for each in looks] == ["1", "1"]
        assert [each["documents_per_second"] for each in looks] == [{}, {"parse": 0}]
        drawn, _ = await asyncio.to_thread(
            command(scene, "graph", str(graph), "--svg", "--engine", address).communicate
        )
        assert "1 dead" in drawn
        (letter,) = (await ask("peek", "parse"))["letters"]
        assert letter["message"]["error_type"] == "CONNECTION_REFUSED"
        assert (await ask("pause", "parse", "--reason", "deploy"))["state"] == "NODE_STATE_PAUSED"
        async with serving() as module:
            write(graph, scene, module)
            assert (await ask("reload"))["changed_node_ids"] == ["parse"]
            assert (await ask("replay", "parse", "--all", "--yes", "--reason", "healed"))["sent"] == "1"
            assert scene.done() == []  # the node is paused
            await ask("resume", "parse")
            await until(lambda: [done.stream_id for done in scene.done()] == [stream])
            traced = await ask("trace", stream)
        assert [(each["lane"], each["past"]) for each in traced["branches"]][-1] == ("LANE_DONE", False)
        acts = {each.verb for each in await audited(tmp_path)}
        assert {"pause", "pipeline reload", "pipeline replay", "resume"} <= acts
        engine.send_signal(signal.SIGTERM)
        await said(engine)
    finally:
        engine.kill()


async def test_a_watched_graph_is_reloaded_when_its_file_changes_and_a_wrong_one_is_refused_with_the_reason(
    scene, tmp_path, monkeypatch
):
    await make_store(tmp_path, monkeypatch)
    graph, file, good = tmp_path / "graph.json", tmp_path / "report.pdf", tmp_path / "good.json"
    file.write_bytes(b"%PDF")

    async def send():
        await said(command(scene, "send", str(good), str(file), "--json"))

    async with serving() as module:
        write(graph, scene, module)
        engine = command(scene, "run", str(graph), "--watch", "--json", stderr=subprocess.PIPE)
        try:
            await until(lambda: scene.has(f"in.{scene.env}.parse"))
            write(graph, scene, module, ("parse", "index"))
            await until(lambda: scene.has(f"in.{scene.env}.index"))
            write(good, scene, module, ("parse", "index"))
            graph.write_text('{"env": "x", "nodes": [{"id": "parse", "modul": "localhost:1"}]}')
            await asyncio.to_thread(_heard, engine, "the graph goes on as it was", "modul:", "did you mean module?")
            await send()
            await until(lambda: [list(done.processing_path) for done in scene.done()] == [["parse", "index"]])
            write(graph, scene, module, ("parse", "index", "last"))  # a right one is taken after a wrong one
            await until(lambda: scene.has(f"in.{scene.env}.last"))
            write(good, scene, module, ("parse", "index", "last"))
            await send()
            await until(lambda: len(scene.done()) == 2)
            engine.send_signal(signal.SIGTERM)
            _, rest = await asyncio.to_thread(engine.communicate, timeout=LIMIT)
        finally:
            engine.kill()
            engine.wait()
    assert ["parse", "index", "last"] in [list(done.processing_path) for done in scene.done()]
    assert engine.returncode == 0, rest
    assert [(act.by, act.verb) for act in await audited(tmp_path)] == [("--watch", "pipeline reload")] * 2


def _heard(process, *words):
    """Wait until *process* has said all these *words*, on one line or several."""
    said = ""
    for line in process.stderr:
        said += line
        if all(word in said for word in words):
            return
    raise AssertionError(said)
