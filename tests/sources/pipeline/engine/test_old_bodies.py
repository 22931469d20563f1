"""An engine deletes bodies by age, every hour, if the graph asks for it."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest

from redrive.sources.pipeline import Graph, Node
from redrive.sources.pipeline.documents.repository import BodyMissing, DocumentRepository
from redrive.sources.pipeline.engine.old_bodies import EVERY, delete_old_bodies, delete_once
from redrive.sources.pipeline.graph.model import DocumentStorage

OLD = 3 * 86_400  # seconds


def graph_with(**storage) -> Graph:
    documents = DocumentStorage(**storage) if storage else None
    return Graph(env="e", nodes=(Node(id="a", module="h:1"),), documents=documents)


async def ended_body(folder) -> tuple[DocumentRepository, str, bytes]:
    """Keep the body of a document that ended three days ago."""
    repository = DocumentRepository(DocumentStorage(url=f"file://{folder}"))
    key, digest = await repository.put("stream", "", b"body")
    await repository.note_end("stream", "")
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (path.stat().st_mtime - OLD,) * 2)
    return repository, key, digest


class Hours:
    """A clock whose hours pass when the test says so."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[float] = asyncio.Queue()
        self.go_on = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        self.asked.put_nowait(seconds)
        await self.go_on.acquire()


async def test_a_running_engine_deletes_old_bodies_once_an_hour(tmp_path):
    repository, key, digest = await ended_body(tmp_path)
    hours = Hours()
    deleting = asyncio.ensure_future(
        delete_old_bodies(lambda: graph_with(url=f"file://{tmp_path}", keep_days=1), hours)
    )
    assert await hours.asked.get() == EVERY
    assert await repository.get(key, digest) == b"body"
    hours.go_on.release()
    await hours.asked.get()
    with pytest.raises(BodyMissing):
        await repository.get(key, digest)
    deleting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await deleting


async def test_without_keep_days_bodies_stay(tmp_path):
    repository, key, digest = await ended_body(tmp_path)
    assert await delete_once(graph_with(url=f"file://{tmp_path}")) == 0
    assert await delete_once(graph_with()) == 0
    assert await repository.get(key, digest) == b"body"


async def test_a_repository_that_is_away_is_asked_later(caplog):
    options = {"endpoint": "http://127.0.0.1:9", "region": "x", "access_key_id": "x", "secret_access_key": "x"}
    assert await delete_once(graph_with(url="s3://documents", keep_days=1, options=options)) == 0
    assert "old bodies are deleted later" in caplog.text
