"""Limits on bytes and time, and the cap while a body unpacks."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib

import pytest
from tests.sources.webhook.asgi import post

from redrive import Redrive
from redrive.sources.webhook import Inbox, Source
from redrive.sources.webhook.receiving.unpack import unpack

GZIP = [(b"content-encoding", b"gzip")]


def inbox_of(**limits):
    return Inbox(Redrive("memory://", inbox=limits), [Source.hmac(insecure=True, header="X-Sig")], workers="elsewhere")


@pytest.fixture
def inbox():
    return inbox_of(max_body=1_000, max_headers=500, max_header_count=10)


async def test_a_body_that_announces_too_much_is_413_before_a_byte_is_read(inbox):
    answer = await post(inbox, "/hmac", headers=[(b"content-length", b"1001")], parts=[])
    assert (answer.status, answer.headers[b"connection"]) == (413, b"close")


async def test_a_body_that_grows_beyond_the_limit_is_413(inbox):
    assert (await post(inbox, "/hmac", parts=[b"x" * 999, b"x"])).status == 202
    assert (await post(inbox, "/hmac", parts=[b"x" * 1_000, b"x"])).status == 413
    assert inbox.counts.results["hmac", "too_large"] == 1


@pytest.mark.parametrize("length", [b"-1", b"1e3", b"+5", b"9" * 40, b"", b"0x10"])
async def test_a_length_that_is_no_number_is_413(inbox, length):
    assert (await post(inbox, "/hmac", b"x", [(b"content-length", length)])).status == 413


async def test_a_flood_of_headers_is_431(inbox):
    assert (await post(inbox, "/hmac", b"", [(b"x", b"")] * 11)).status == 431
    assert (await post(inbox, "/hmac", b"", [(b"x", b"y" * 500)])).status == 431


async def test_a_body_that_takes_too_long_is_408():
    inbox = inbox_of(receive_seconds=0.01)
    sent = []

    async def never():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/hmac", "query_string": b"", "headers": []}
    await inbox(scope, never, send)
    assert sent[0]["status"] == 408
    assert inbox.counts.results["hmac", "too_slow"] == 1


async def test_a_sender_that_leaves_is_not_answered_and_nothing_is_kept(inbox):
    assert (await post(inbox, "/hmac", parts=[])).status == 0
    assert inbox.counts.results == {}


async def test_all_bodies_that_arrive_at_one_time_share_one_limit():
    inbox = inbox_of(max_receiving=1_000)
    assert (await post(inbox, "/hmac", b"x" * 1_001)).status == 503
    assert (await post(inbox, "/hmac", b"x" * 1_000)).status == 202  # the bytes were given back


async def test_a_compression_bomb_is_413_and_never_unpacks():
    bomb = gzip.compress(bytes(200_000_000), mtime=0)
    tracemalloc.start()
    inbox = inbox_of(max_body=1_000_000)
    assert (await post(inbox, "/hmac", bomb, GZIP)).status == 413
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000
    assert inbox.counts.results == {("hmac", "too_large"): 1}


@pytest.mark.parametrize(
    "body", [b"", b"no gzip", gzip.compress(b"x" * 99, mtime=0)[:-4], gzip.compress(b"x", mtime=0) + b"more"]
)
async def test_what_does_not_unpack_is_400(inbox, body):
    assert (await post(inbox, "/hmac", body, GZIP)).status == 400


@pytest.mark.parametrize("encoding", [b"br", b"gzip, gzip", b"zstd", b"\xff"])
async def test_an_encoding_that_is_not_known_is_415(inbox, encoding):
    assert (await post(inbox, "/hmac", b"x", [(b"content-encoding", encoding)])).status == 415


def test_deflate_and_identity_unpack():
    assert unpack([(b"content-encoding", b"Deflate")], zlib.compress(b"x"), 10) == b"x"
    assert unpack([(b"content-encoding", b"identity")], b"x", 10) == b"x"
