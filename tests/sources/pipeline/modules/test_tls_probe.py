"""What a look at a module tells about TLS, and what it does not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from contextlib import asynccontextmanager

import pytest
from tests.servers.ports import free_port
from tests.sources.pipeline.modules.test_serving import certificates

from redrive.sources.pipeline.graph.model import Tls
from redrive.sources.pipeline.modules import tls_probe
from redrive.sources.pipeline.modules.tls_probe import disagreement, place_of


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("ours"))


@asynccontextmanager
async def listening(serve, context=None):
    """Run a server that does *serve* with each connection."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def demanding(ours, version):
    """Return how a server speaks that asks for certificates, in this *version* of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ours.certificate, ours.key)
    context.load_verify_locations(ours.ca)
    context.verify_mode, context.maximum_version = ssl.CERT_REQUIRED, version
    return context


def refuse_twice(server, context):
    """Refuse two connections as most servers do, with an alert; asyncio's hang up without a word."""
    server.settimeout(30)
    for _ in range(2):
        plain, _address = server.accept()
        with plain, contextlib.suppress(ssl.SSLError):
            context.wrap_socket(plain, server_side=True)


async def closing(_reader, writer):
    writer.close()


async def talking(_reader, writer):
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


async def waiting(reader, writer):
    await reader.read()
    writer.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("encrypted", [True, False])
async def test_a_server_that_refuses_with_an_alert_is_told_from_its_alert(ours, version, encrypted):
    with socket.create_server(("127.0.0.1", 0)) as server:
        serving = asyncio.create_task(asyncio.to_thread(refuse_twice, server, demanding(ours, version)))
        given = Tls(ca=ours.ca) if encrypted else None
        found = await disagreement(f"127.0.0.1:{server.getsockname()[1]}", given)
        await serving
    assert found.startswith("the module asks for a certificate; " if encrypted else "the module speaks TLS, ")
    assert ("ALERT" in found) == encrypted


async def test_a_module_that_dies_after_one_handshake_is_no_disagreement(ours):
    context, seen = demanding(ours, ssl.TLSVersion.TLSv1_3), []
    context.verify_mode = ssl.CERT_NONE

    async def die(_reader, writer):
        seen.append(writer)
        server.close()
        writer.close()

    server = await asyncio.start_server(die, "127.0.0.1", 0, ssl=context)
    target = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    assert await disagreement(target, ours) == ""
    assert len(seen) == 1


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("serve", [closing, talking, waiting])
async def test_a_server_without_tls_and_one_that_is_away_are_no_disagreement(ours, monkeypatch, serve, tls):
    monkeypatch.setattr(tls_probe, "_LIMIT", 0.1)
    given = ours if tls else None
    async with listening(serve) as target:
        assert await disagreement(target, given) == ""
    assert await disagreement(f"127.0.0.1:{free_port()}", given) == ""


async def test_a_server_that_accepts_the_engine_and_says_nothing_is_no_disagreement(ours, monkeypatch):
    monkeypatch.setattr(tls_probe, "_LIMIT", 0.1)
    async with listening(waiting, demanding(ours, ssl.TLSVersion.TLSv1_3)) as target:
        assert await disagreement(target, ours) == ""


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("localhost:50051", ("localhost", 50051)), ("dns:///embedder:1", ("embedder", 1)),
        ("dns://1.1.1.1/embedder:1", ("embedder", 1)), ("dns:embedder:2", ("embedder", 2)),
        ("ipv4:10.0.0.1:1,10.0.0.2:2", ("10.0.0.1", 1)), ("[::1]:50051", ("::1", 50051)),
        ("ipv6:[::1]:3", ("::1", 3)), ("unix:/tmp/module", None), ("nonsense", None),
    ],
)  # fmt: skip
def test_the_first_address_of_a_target_is_looked_at(target, place):
    assert place_of(target) == place
