"""Hostile requests against a real server: no 5xx, no crash, bounded memory, and honest senders are still served."""

from __future__ import annotations

import asyncio
import gzip
import resource

import pytest
from tests.sources.webhook.serving.running import request, running, status, talk

from redrive import Redrive
from redrive.core.query import parse
from redrive.sources.webhook import Inbox, Source

CHUNKED = b"POST /hooks/github HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
FLOODS = ("one endless header", "endless trailers", "a bomb")
FORMS = {
    "two lengths": b"POST /hooks/github HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "length and chunks": b"POST /hooks/github HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
    "chunks twice": b"POST /hooks/github HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "disguised chunks": b"POST /hooks/github HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": b"POST /hooks/github HTTP/1.1\r\nHost : x\r\nContent-Length : 2\r\n\r\n{}",
    "a folded header": b"POST /hooks/github HTTP/1.1\r\nHost: x\r\nX-A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    "bare line feeds": b"POST /hooks/github HTTP/1.1\nHost: x\nContent-Length: 0\n\n",
    "a length below zero": b"POST /hooks/github HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "a length in hex": b"POST /hooks/github HTTP/1.1\r\nHost: x\r\nContent-Length: 0x10\r\n\r\n",
    "an endless length": b"POST /hooks/github HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 40 + b"\r\n\r\n",
    "a chunk too long": CHUNKED + b"FFFFFFFFFFFFFFFFF\r\n",
    "a chunk below zero": CHUNKED + b"-1\r\nx\r\n0\r\n\r\n",
    "a lie about a chunk": CHUNKED + b"1\r\nabc\r\n0\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "zeros": bytes(1_000),
    "a path that is no text": request("/hooks/\xff\xfe"),
    "an absolute address": request("http://evil.example/hooks/github", b"{}"),
    "a path that climbs": request("/hooks/../../etc/passwd"),
    "an escaped path that climbs": request("/hooks/%2e%2e%2fgithub"),
    "a zero in the path": request("/hooks/github%00"),
    "an upgrade": request("/hooks/github", b"", "Upgrade: websocket").replace(
        b"Connection: close", b"Connection: Upgrade"
    ),
    "a header that is no text": request("/hooks/github", b"{}", "X-Bytes: \xff\xfe"),
    "a tunnel": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    "a star": b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "a body that is no text": request("/hooks/github", b"\xff\xfe\x00", "Content-Type: application/json"),
    "an encoding that lies": request("/hooks/github", b"{}", "Content-Encoding: gzip"),
    "a bomb": request("/hooks/github", gzip.compress(bytes(50_000_000), mtime=0), "Content-Encoding: gzip"),
    "many headers": request("/hooks/github", b"", *[f"X-{n}: y" for n in range(5_000)]),
    "one endless header": b"POST /hooks/github HTTP/1.1\r\nX-A: " + b"y" * 3_000_000,
    "an endless path": b"POST /" + b"a" * 3_000_000,
    "endless trailers": request("/hooks/github", b"", "Transfer-Encoding: chunked")
    + b"0\r\n"
    + b"X-A: y\r\n" * 2_000_000,
    "a body that is too large": request("/hooks/github", bytes(2_000_000)),
}


MUST_BE = {  # where the answer says which limit was met; 0: the connection was reset while we still wrote
    "two lengths": {400},
    "length and chunks": {400},
    "one endless header": {431, 0},
    "an endless path": {431, 400, 0},
    "many headers": {431, 0},
    "endless trailers": {413, 0},
    "a body that is too large": {413, 0},
    "a bomb": {413},
}


@pytest.fixture
async def public():
    app = Redrive("memory://", inbox={"receive_seconds": 0.5, "max_body": 1_000_000})
    source = Source.hmac("github", insecure=True, header="X-Sig")
    inbox = Inbox(app, [source], workers="elsewhere")
    async with running(inbox) as (address, _):
        yield address


@pytest.mark.parametrize("name", FORMS)
async def test_a_hostile_request_is_refused_and_the_next_sender_is_served(public, name):
    answer = await talk(public, FORMS[name])
    assert status(answer) in MUST_BE.get(name, range(500)), answer[:200]
    assert b"smuggled" not in answer
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert status(await talk(public, request("/hooks/github", b"honest"))) == 202


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"\r\n",
        b"POST",
        b"POST /hooks/github HTTP/1.1\r\nHost: x\r\nX-",
        request("/hooks/github", b"x", "Content-Length: 9"),
    ],
)
async def test_a_request_that_never_ends_is_cut_at_the_deadline(public, beginning):
    answer = await talk(public, beginning)
    assert status(answer) == 408


async def test_a_drip_of_bytes_does_not_move_the_deadline(public):
    host, port = public.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    closed = asyncio.create_task(reader.read())
    loop = asyncio.get_running_loop()
    began = loop.time()
    writer.write(b"POST /hooks/github HTTP/1.1\r\nX-A: ")
    while not closed.done() and loop.time() - began < 10:
        writer.write(b"y")
        await asyncio.wait({closed}, timeout=0.05)
    assert closed.done()
    assert loop.time() - began < 5
    writer.close()


@pytest.mark.parametrize("endless", [b"X-A: y\r\n", b"y"])
async def test_trailers_end_at_their_limit_long_before_the_deadline(endless):
    app = Redrive("memory://", inbox={"receive_seconds": 600, "max_body": 1_000})
    source = Source.hmac("github", insecure=True, header="X-Sig")
    async with running(Inbox(app, [source], workers="elsewhere")) as (address, _):
        head = request("/hooks/github", b"", "Transfer-Encoding: chunked") + b"0\r\nX-B: "
        answer = await talk(address, head, endless * (400_000 // len(endless)))
    assert status(answer) in (413, 0)  # within the patience of `talk`


async def test_five_hundred_slow_senders_keep_no_honest_one_out(public):
    slow = [asyncio.create_task(talk(public, request("/hooks/github", b"", "Content-Length: 10"))) for _ in range(500)]
    honest = [await talk(public, request("/hooks/github", b"%d" % n)) for n in range(20)]
    assert {status(answer) for answer in honest} == {202}
    assert {status(answer) for answer in await asyncio.gather(*slow)} == {408}


async def test_memory_stays_bounded_under_floods(public):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3):
        await asyncio.gather(
            *(talk(public, FORMS[name]) for name in ("one endless header", "endless trailers", "a bomb"))
        )
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 150_000  # kB


async def test_a_sender_that_leaves_in_the_middle_leaves_no_letter():
    app = Redrive("memory://")
    inbox = Inbox(app, [Source.hmac("github", insecure=True, header="X-Sig")], workers="elsewhere")
    async with running(inbox) as (address, _):
        host, port = address.rsplit(":", 1)
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(request("/hooks/github", b"half", "Content-Length: 100"))
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert status(await talk(address, request("/hooks/github", b"whole"))) == 202
        assert await app.store.count(parse("origin:webhook:*")) == 1
