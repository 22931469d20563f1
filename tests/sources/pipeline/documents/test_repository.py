"""Bodies in a directory and in S3: kept, read, and deleted by age alone."""

from __future__ import annotations

import hashlib
import os
import urllib.request

import pytest
from moto.server import ThreadedMotoServer

from redrive.errors import SettingsError
from redrive.sources.pipeline.documents.repository import BodyMissing, DocumentRepository, RepositoryAway
from redrive.sources.pipeline.graph.model import DocumentStorage

DAY = 86_400
KEYS = {"region": "us-east-1", "access_key_id": "testing", "secret_access_key": "testing"}


@pytest.fixture(scope="module")
def s3():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    request = urllib.request.Request(f"{endpoint}/documents", method="PUT")  # noqa: S310 - loopback
    urllib.request.urlopen(request).close()  # noqa: S310 - loopback
    yield endpoint
    server.stop()


@pytest.fixture(params=["file", "s3"])
def repository(request, tmp_path):
    if request.param == "file":
        return DocumentRepository(DocumentStorage(url=f"file://{tmp_path}/docs"))
    endpoint = request.getfixturevalue("s3")
    url = f"s3://documents/{request.node.name.replace('[', '-').strip(']')}"
    return DocumentRepository(DocumentStorage(url=url, options={**KEYS, "endpoint": endpoint}))


@pytest.fixture
def local(tmp_path):
    return DocumentRepository(DocumentStorage(url=f"file://{tmp_path}/docs"))


def age(folder, days: float, kind: str = "") -> None:
    """Let every file of *kind* in *folder* be so many days older."""
    for path in (folder / "docs" / kind).rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - days * DAY
            os.utime(path, (then, then))


async def test_a_body_comes_back_as_it_was(repository):
    body = bytes(range(256)) * 1000
    key, digest = await repository.put("stream", "1of2", body)
    assert await repository.get(key, digest) == body
    assert digest == hashlib.sha256(body).digest()
    assert (await repository.put("stream", "1of2", body))[0] == key


@pytest.mark.parametrize("stream_id", ["../../etc", "a/b", "", "ü \x00", "x" * 5000, "\ud800"])
async def test_any_stream_id_has_a_place_of_its_own(local, stream_id):
    key, digest = await local.put(stream_id, "", b"body")
    assert await local.get(key, digest) == b"body"
    assert ".." not in key


async def test_a_body_that_is_gone_or_changed_is_missing(repository):
    key, digest = await repository.put("stream", "", b"body")
    with pytest.raises(BodyMissing, match="differs"):
        await repository.get(key, b"other")
    with pytest.raises(BodyMissing, match="no body"):
        await repository.get(key + "0", digest)


@pytest.mark.parametrize("key", ["../secret", "", "/etc/passwd", "bodies/../../x"])
async def test_a_reference_leads_to_nothing_outside_the_repository(local, tmp_path, key):
    (tmp_path / "secret").write_bytes(b"s")
    with pytest.raises((BodyMissing, RepositoryAway)):
        await local.get(key, hashlib.sha256(b"s").digest())


async def test_a_store_that_is_away_says_so():
    options = {**KEYS, "endpoint": "http://127.0.0.1:9"}
    away = DocumentRepository(DocumentStorage(url="s3://documents", options=options))
    with pytest.raises(RepositoryAway, match="cannot write to the repository"):
        await away.put("stream", "", b"body")
    with pytest.raises(RepositoryAway, match="cannot read from the repository"):
        await away.get("key", b"")


async def test_a_bucket_that_is_not_there_is_away_not_empty(s3):
    away = DocumentRepository(DocumentStorage(url="s3://nowhere", options={**KEYS, "endpoint": s3}))
    with pytest.raises(RepositoryAway):
        await away.put("stream", "", b"body")


async def test_a_body_in_a_bucket_that_is_not_there_is_not_missing_but_away(s3):
    away = DocumentRepository(DocumentStorage(url="s3://nowhere", options={**KEYS, "endpoint": s3}))
    with pytest.raises(RepositoryAway, match="cannot read from the repository"):
        await away.get("bodies/x", b"")


async def test_a_body_in_a_folder_that_is_not_mounted_is_not_missing_but_away(local, tmp_path):
    key, digest = await local.put("stream", "", b"body")
    (tmp_path / "docs").rename(tmp_path / "unmounted")
    with pytest.raises(RepositoryAway, match="its folder does not exist"):
        await local.get(key, digest)
    (tmp_path / "unmounted").rename(tmp_path / "docs")
    assert await local.get(key, digest) == b"body"


@pytest.mark.parametrize("url", ["ftp://x/y", "s3://", "nonsense://a"])
def test_a_url_that_no_store_has_is_refused(url):
    with pytest.raises(SettingsError, match="cannot open the repository"):
        DocumentRepository(DocumentStorage(url=url))


async def test_a_body_goes_once_its_document_has_ended_and_is_old(local, tmp_path):
    key, digest = await local.put("stream", "", b"body")
    await local.note_end("stream", "")
    assert await local.delete_ended(keep_days=1) == 0  # it has just ended
    age(tmp_path, days=2)
    assert await local.delete_ended(keep_days=3) == 0
    assert await local.delete_ended(keep_days=1) == 1
    with pytest.raises(BodyMissing):
        await local.get(key, digest)
    assert [path for path in (tmp_path / "docs").rglob("*") if path.is_file()] == [tmp_path / "docs" / "clock"]


async def test_a_body_stays_while_a_branch_is_anywhere_else(local, tmp_path):
    key, digest = await local.put("stream", "", b"body")
    await local.note_end("stream", "1of2")
    age(tmp_path, days=400)
    assert await local.delete_ended(keep_days=1) == 0
    await local.note_hold("stream", "2of2")
    age(tmp_path, days=400)
    assert await local.delete_ended(keep_days=1) == 0
    assert await local.get(key, digest) == b"body"
    await local.note_end("stream", "2of2")
    age(tmp_path, days=2)
    assert await local.delete_ended(keep_days=1) == 1


async def test_a_document_that_is_sent_again_keeps_its_body(local, tmp_path):
    await local.put("stream", "", b"body")
    await local.note_end("stream", "")
    age(tmp_path, days=400)
    key, digest = await local.put("stream", "", b"body")
    assert await local.delete_ended(keep_days=1) == 0
    assert await local.get(key, digest) == b"body"


async def test_documents_without_a_note_are_never_deleted(local, tmp_path):
    key, digest = await local.put("stream", "", b"body")
    age(tmp_path, days=4000)
    assert await local.delete_ended(keep_days=1) == 0
    assert await local.get(key, digest) == b"body"


async def test_the_age_is_told_by_the_store_in_s3_too(repository):
    await repository.put("stream", "", b"body")
    await repository.note_end("stream", "")
    assert await repository.delete_ended(keep_days=1) == 0
    assert await repository.delete_ended(keep_days=-1) == 1  # as if a day had passed
