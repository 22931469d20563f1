"""TLS and mTLS between a running engine and a real module: right certificates, wrong ones, and their repair."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager

import pytest
from tests.sources.pipeline.modules.test_serving import certificates, echo
from tests.sources.pipeline.scene import running, until

from redrive.errors import SettingsError
from redrive.sources.pipeline import module
from redrive.sources.pipeline.engine import gate
from redrive.sources.pipeline.graph.model import Tls
from redrive.sources.pipeline.protos.document_pb2 import PipeStream


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(gate, "TRY_AGAIN", 0.05)


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("others"))


def wire(tls: Tls) -> dict[str, str]:
    return {name: path for name in ("ca", "certificate", "key") if (path := getattr(tls, name))}


def one_sided(tls: Tls) -> Tls:
    """Return *tls* as a module has it that asks engines for no certificate."""
    return Tls(certificate=tls.certificate, key=tls.key)


@asynccontextmanager
async def engine_beside(scene, served: Tls | None, called: Tls | None, *, host: str = "localhost"):
    """Run an engine that calls a module, each with its own idea of TLS; two documents are on their way."""
    async with module(echo).listening("localhost:0", tls=served) as address:
        target = f"{host}:{address.rpartition(':')[2]}"
        node = {"id": "parse", "module": target, **({"tls": wire(called)} if called else {})}
        graph = scene.graph(node)
        pipeline = scene.pipeline(graph)
        async with running(pipeline):
            scene.send(graph, 2, body=b"kept")
            yield pipeline, node


@pytest.mark.parametrize("mutual", [False, True], ids=["tls", "mtls"])
async def test_documents_go_through_a_module_behind_tls(scene, ours, mutual):
    served, called = (ours, ours) if mutual else (one_sided(ours), Tls(ca=ours.ca))
    async with engine_beside(scene, served, called):
        await until(lambda: len(scene.done()) == 2)


async def test_a_certificate_of_an_authority_that_the_engine_does_not_trust_holds_the_node_until_it_is_repaired(
    scene, ours, others
):
    async with engine_beside(scene, one_sided(ours), Tls(ca=others.ca)) as (pipeline, node):
        await until(lambda: pipeline.health["parse"].status == "red")
        [reason, *_] = pipeline.health["parse"].reasons
        assert reason.startswith("held: TLS_FAILED: ")
        assert "CERTIFICATE_VERIFY_FAILED" in reason
        assert (scene.committed("parse"), scene.dead("parse"), scene.quarantined("parse")) == (0, [], [])
        await pipeline.reload(scene.graph({**node, "tls": {"ca": ours.ca}}, version=2))
        await until(lambda: len(scene.done()) == 2)
    assert scene.dead("parse") == []


@pytest.mark.parametrize("case", ["another name", "no TLS at the module"])
async def test_a_handshake_that_fails_says_why_and_moves_nothing(scene, ours, case):
    served, host = (ours, "127.0.0.1") if case == "another name" else (None, "localhost")
    async with engine_beside(scene, served, ours, host=host) as (pipeline, _node):
        await until(lambda: pipeline.health["parse"].status == "red")
        [reason, *_] = pipeline.health["parse"].reasons
        assert ("Hostname Verification" if case == "another name" else "WRONG_VERSION_NUMBER") in reason
        assert (scene.committed("parse"), scene.done(), scene.dead("parse")) == (0, [], [])


REFUSED = {
    "no certificate": "the module asks for a certificate",
    "one of another authority": "the module does not accept the engine's certificate",
    "no TLS at the engine": "the module speaks TLS, and the node has no `tls`",
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_module_that_refuses_the_engine_holds_the_node_until_it_is_repaired_and_the_reason_names_the_way_out(
    scene, ours, others, case
):
    given = {"no certificate": Tls(ca=ours.ca), "no TLS at the engine": None,
             "one of another authority": Tls(ca=ours.ca, certificate=others.certificate, key=others.key)}  # fmt: skip
    async with engine_beside(scene, ours, given[case]) as (pipeline, node):
        await until(lambda: pipeline.health["parse"].status == "red")
        [reason, *_] = pipeline.health["parse"].reasons
        assert reason.startswith(f"held: TLS_FAILED: {REFUSED[case]}; ")
        assert (scene.committed("parse"), scene.dead("parse"), scene.quarantined("parse")) == (0, [], [])
        await pipeline.reload(scene.graph({**node, "tls": wire(ours)}, version=2))
        await until(lambda: len(scene.done()) == 2)
    assert scene.dead("parse") == []


async def test_a_reload_whose_tls_file_is_missing_leaves_every_node_running_as_it_was(scene, ours, tmp_path):
    async with engine_beside(scene, one_sided(ours), Tls(ca=ours.ca)) as (pipeline, node):
        await until(lambda: len(scene.done()) == 2)
        broken = scene.graph({**node, "tls": {"ca": str(tmp_path / "gone.pem")}}, version=2)
        with pytest.raises(SettingsError, match=r"gone\.pem"):
            await pipeline.reload(broken)
        assert pipeline.graph.version == 1
        scene.send(pipeline.graph, 3)
        await until(lambda: len(scene.done()) == 5)


async def test_a_reload_reads_certificates_again_that_were_renewed_in_their_place(scene, ours, others, tmp_path):
    place = tmp_path / "ca.pem"
    shutil.copy(others.ca, place)
    async with engine_beside(scene, one_sided(ours), Tls(ca=str(place))) as (pipeline, _node):
        await until(lambda: pipeline.health["parse"].status == "red")
        shutil.copy(ours.ca, place)
        await pipeline.reload(pipeline.graph)
        await until(lambda: len(scene.done()) == 2)
    assert scene.dead("parse") == []


def renew(path):
    """Write the file at *path* anew, as a renewal does; its authority is the same."""
    path.write_bytes(path.read_bytes() + b"\n")


async def test_the_channel_with_the_old_certificates_is_closed_when_its_last_call_has_ended(scene, ours, tmp_path):
    place, begun, opened = tmp_path / "ca.pem", asyncio.Event(), asyncio.Event()
    shutil.copy(ours.ca, place)

    async def slow(document):
        begun.set()
        await opened.wait()
        return document

    async with module(slow).listening("localhost:0", tls=one_sided(ours)) as address:
        graph = scene.graph({"id": "parse", "module": address, "tls": {"ca": str(place)}})
        pipeline = scene.pipeline(graph)
        async with running(pipeline):
            await until(lambda: pipeline._arrivals is not None)
            handed = asyncio.create_task(pipeline.process(PipeStream(stream_id="s1"), "parse"))
            await begun.wait()
            renew(place)
            await pipeline.reload(graph)
            await pipeline._close_clients()
            assert pipeline._clients.targets == [address, address]  # a call is under way on the old one
            opened.set()
            await handed
            await until(lambda: pipeline._clients.targets == [address])
            scene.send(graph)
            await until(lambda: len(scene.done()) == 2)
    assert scene.dead("parse") == []


async def test_a_reload_that_fails_closes_no_channel_of_the_graph_that_goes_on(scene, ours, tmp_path):
    place = tmp_path / "ca.pem"
    shutil.copy(ours.ca, place)
    async with engine_beside(scene, one_sided(ours), Tls(ca=str(place))) as (pipeline, node):
        await until(lambda: len(scene.done()) == 2)
        renew(place)
        missing = {"id": "index", "module": node["module"], "tls": {"ca": str(tmp_path / "gone.pem")}}
        with pytest.raises(SettingsError, match=r"gone\.pem"):
            await pipeline.reload(scene.graph(node, missing, version=2))
        await pipeline._close_clients()
        assert pipeline._clients.targets == [node["module"]]
        scene.send(pipeline.graph, 3)
        await until(lambda: len(scene.done()) == 5)
        await pipeline.reload(pipeline.graph)
        await until(lambda: pipeline._clients.targets == [node["module"]])
        scene.send(pipeline.graph, 4)
        await until(lambda: len(scene.done()) == 9)
    assert scene.dead("parse") == []
