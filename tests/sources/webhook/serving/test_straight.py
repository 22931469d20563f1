"""Plain requests on their short way: the same answers and the same bounds as over ASGI."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.sources.webhook.serving.running import request, running, status, talk, until

from redrive import Redrive
from redrive.sources.webhook import Inbox, Source
from redrive.sources.webhook.serving import server, straight


@pytest.fixture
def ways(monkeypatch):
    """Note which requests took the short way."""
    taken = []
    short = straight.StraightProtocol._straight

    def look(self):
        found = short(self)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(straight.StraightProtocol, "_straight", look)
    return taken


def made(*, now=None, **config):
    app = Redrive("memory://", inbox=config)
    return Inbox(app, [Source.github(insecure=True)], workers="elsewhere", **({"now": now} if now else {}))


def event(name: str, body: bytes = b"{}", *headers: str) -> bytes:
    """Return a request that leaves the connection open."""
    return request("/hooks/github", body, f"X-GitHub-Delivery: {name}", *headers).replace(b"Connection: close\r\n", b"")


def chunked(name: str) -> bytes:
    head = event(name, b"", "Transfer-Encoding: chunked")
    return head + b"2\r\n{}\r\n0\r\n\r\n"


async def connect(address: str):
    host, port = address.rsplit(":", 1)
    return await asyncio.open_connection(host, int(port))


async def answer_of(reader) -> tuple[int, bytes, bytes]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    length = int(re.search(rb"content-length: (\d+)", head)[1])
    return status(head), head, await reader.readexactly(length)


async def test_both_ways_give_the_same_answers(ways):
    async with running(made()) as (public, _):
        reader, writer = await connect(public)
        found = []
        for sent in (event("a"), chunked("b"), event("a"), chunked("b")):
            writer.write(sent)
            code, head, body = await answer_of(reader)
            names = sorted(line.split(b":")[0] for line in head.split(b"\r\n")[1:] if line)
            found.append((code, names, re.sub(rb'"id":"[^"]*"', b"", body)))
        writer.close()
    assert ways == [True, False, True, False]
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert [code for code, _, _ in found] == [202, 202, 200, 200]


async def test_requests_that_are_pipelined_are_answered_in_their_order(ways):
    async with running(made()) as (public, _):
        reader, writer = await connect(public)
        alone = [(await talk(public, request("/hooks/github", b"{}", f"X-GitHub-Delivery: {name}"))) for name in "abc"]
        writer.write(event("a") + event("b") + chunked("c"))
        bodies = [(await answer_of(reader))[2] for _ in range(3)]
        writer.close()
    ids = [re.search(rb'"id":"([^"]*)"', text)[1] for text in (*alone, *bodies)]
    assert ids[:3] == ids[3:]
    assert ways.count(True) >= 4


async def test_a_sender_that_asks_to_close_is_told_so_and_closed(ways):
    async with running(made()) as (public, _):
        answer = await talk(public, request("/hooks/github", b"{}"))
    assert ways == [True]
    assert b"\r\nconnection: close\r\n" in answer


async def test_a_body_in_many_parts_arrives_whole(ways):
    async with running(inbox := made()) as (public, _):
        reader, writer = await connect(public)
        whole = event("parts", bytes(range(256)) * 8)
        for start in range(0, len(whole), 500):
            writer.write(whole[start : start + 500])
            await writer.drain()
            await asyncio.sleep(0)
        assert (await answer_of(reader))[0] == 202
        writer.close()
        (letter,) = (await inbox.app.desk.ls("origin:webhook:github")).letters
        assert (await inbox.app.desk.show(letter.id)).payload == bytes(range(256)) * 8
    assert ways == [True]


@pytest.mark.parametrize(
    "sent",
    [
        event("large", bytes(70_000)),
        event("expecting", b"{}", "Expect: 100-continue"),
        event("old").replace(b"HTTP/1.1", b"HTTP/1.0"),
        event("other").replace(b"/hooks/github", b"/hooks/%67ithub"),
        event("none", b""),
    ],
)
async def test_what_is_not_plain_goes_over_asgi_and_is_kept_too(ways, sent):
    async with running(made()) as (public, _):
        reader, writer = await connect(public)
        writer.write(sent)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        if b" 100 " in head:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        writer.close()
    assert status(head) == 202
    assert ways == [False]


async def test_bodies_that_are_too_many_at_one_time_are_refused_and_forgotten(ways):
    async with running(inbox := made(max_receiving=50)) as (public, _):
        answer = await talk(public, event("a", bytes(100)))
        assert (status(answer), b"connection: close" in answer) == (503, True)
        assert inbox.receiver.bodies.held == 0
        assert inbox.counts.results["github", "unavailable"] == 1
        assert status(await talk(public, request("/hooks/github", b"{}"))) == 202
    assert ways == [True, True]


async def test_a_sender_that_leaves_in_the_middle_of_a_body_holds_no_memory(ways):
    async with running(inbox := made()) as (public, _):
        _, writer = await connect(public)
        writer.write(event("a", bytes(1_000))[:-500])
        await until(lambda: inbox.receiver.bodies.held == 500)
        writer.close()
        await until(lambda: inbox.receiver.bodies.held == 0)
    assert ways == [True]
    assert not inbox.counts.results


async def test_a_connection_that_stays_idle_is_closed(monkeypatch, ways):
    monkeypatch.setattr(server, "_KEEP_ALIVE", 0.05)
    async with running(made()) as (public, _):
        reader, writer = await connect(public)
        writer.write(event("a"))
        assert (await answer_of(reader))[0] == 202
        assert await asyncio.wait_for(reader.read(), 5) == b""  # long before a request would be late
        writer.close()
    assert ways == [True]


async def test_the_deadline_of_a_request_holds_after_an_idle_time(ways):
    async with running(made(receive_seconds=0.2)) as (public, _):
        reader, writer = await connect(public)
        writer.write(event("a"))
        assert (await answer_of(reader))[0] == 202
        writer.write(event("b")[:40])
        assert status(await asyncio.wait_for(reader.read(), 4)) == 408
        writer.close()


async def test_what_goes_wrong_inside_is_a_500_and_the_connection_ends(ways):
    def broken() -> float:
        raise ZeroDivisionError

    async with running(inbox := made(now=broken)) as (public, _):
        answer = await talk(public, event("a"))
        assert inbox.receiver.bodies.held == 0
    assert (status(answer), b"connection: close" in answer) == (500, True)
    assert ways == [True]
