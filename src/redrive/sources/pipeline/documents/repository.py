"""
The repository of bodies, on any object store.

Owns where bodies and the notes about their branches are, and what an unreachable store means. Bodies go by age alone,
once every branch below the one that kept them has ended; the object store's clock says how old they are. Knows no
Kafka, no node and no module.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError
from obstore.store import LocalStore, from_url

from redrive.errors import SettingsError, SourceError
from redrive.sources.pipeline.documents.branches import ended_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redrive.sources.pipeline.graph.model import DocumentStorage

_FAILURES = (BaseError, OSError, PermissionError)
_PATIENCE: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}  # the engine retries as the node says
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "specified bucket does not exist")  # as S3, Azure and GCS say it
_ROOT = "root"  # the name of the branch that no fan-out made
_DAY = 86_400  # seconds


class RepositoryAway(SourceError):
    """The repository cannot be reached, or refuses; nothing was kept or read. Try again."""


class BodyMissing(SourceError):
    """The repository has no such body, or not the one that was kept."""


class DocumentRepository:
    """Bodies in the object store that *storage* names."""

    def __init__(self, storage: DocumentStorage) -> None:
        self.storage = storage
        self._store = _opened(storage)
        self._folder = Path(str(self._store.prefix)) if isinstance(self._store, LocalStore) else None

    # ------------------------------------------------------------------ bodies

    async def put(self, stream_id: str, branch: str, body: bytes) -> tuple[str, bytes]:
        """Keep *body*, durably; return its key and its SHA-256. The same body has the same key."""
        digest = hashlib.sha256(body).digest()
        key = f"bodies/{_folder(stream_id)}/{_file(branch)}/{digest.hex()}"
        await self._put(key, body)
        return key, digest

    async def get(self, key: str, sha256: bytes) -> bytes:
        """Return the body of *key*; raise BodyMissing if it is gone or is not the one that was kept."""
        try:
            answer = await self._store.get_async(key)
            body = bytes(await answer.bytes_async())
        except (FileNotFoundError, ValueError) as error:
            self._must_be_there(error)
            raise BodyMissing(f"the repository has no body {key!r}; it may have been deleted by age") from None
        except _FAILURES as error:
            raise _away("read from", error) from None
        if hashlib.sha256(body).digest() != sha256:
            raise BodyMissing(f"the body {key!r} is not the one that was kept: its SHA-256 differs")
        return body

    def _must_be_there(self, error: Exception) -> None:
        """Raise RepositoryAway if there is no bucket or no folder: that says nothing about the bodies in it."""
        if any(word in str(error) for word in _NO_BUCKET):
            raise RepositoryAway("cannot read from the repository: its bucket does not exist")
        if self._folder is not None and not self._folder.exists():
            raise RepositoryAway("cannot read from the repository: its folder does not exist; is it mounted?")

    # ------------------------------------------------------------------ notes about branches

    async def note_end(self, stream_id: str, branch: str) -> None:
        """Note that *branch* has reached the end; a repeated note changes only its instant."""
        await self._put(f"ends/{_folder(stream_id)}/{_file(branch)}", b"")

    async def note_hold(self, stream_id: str, branch: str) -> None:
        """Note that *branch* was put aside; its bodies stay until it has ended after all."""
        await self._put(f"holds/{_folder(stream_id)}/{_file(branch)}", b"")

    async def delete_ended(self, keep_days: float) -> int:
        """Delete the bodies of branches that ended more than *keep_days* ago; return how many bodies went."""
        await self._put("clock", b"")
        before = (await self._head("clock")) - keep_days * _DAY
        return sum([await self._delete_stream(folder, before) async for folder in self._streams()])

    # ------------------------------------------------------------------ parts

    async def _delete_stream(self, folder: str, before: float) -> int:
        ends, holds = await self._notes("ends", folder), await self._notes("holds", folder)
        kept: list[str] = []
        old: list[str] = []
        async for path, instant in self._listed(f"bodies/{folder}"):
            ended = ended_at(ends, holds, _branch(path.split("/")[-2]))
            is_old = ended is not None and max(ended, instant) < before
            (old if is_old else kept).append(path)
        await self._delete(old)
        if not kept:  # nothing is left that the notes are about
            for kind in ("ends", "holds"):
                await self._delete([path async for path, _ in self._listed(f"{kind}/{folder}")])
        return len(old)

    async def _streams(self) -> AsyncIterator[str]:
        """Yield the folder of every stream that has a note of an end."""
        previous = ""
        async for path, _ in self._listed("ends"):
            folder = path.split("/")[-2]
            if folder != previous:
                yield folder
            previous = folder

    async def _notes(self, kind: str, folder: str) -> dict[str, float]:
        return {_branch(path.rpartition("/")[2]): instant async for path, instant in self._listed(f"{kind}/{folder}")}

    async def _listed(self, prefix: str) -> AsyncIterator[tuple[str, float]]:
        try:
            async for page in self._store.list(prefix):
                for each in page:
                    yield each["path"], each["last_modified"].timestamp()
        except _FAILURES as error:
            raise _away("list", error) from None

    async def _put(self, key: str, value: bytes) -> None:
        try:
            await self._store.put_async(key, value)
            if self._folder is not None:
                await asyncio.to_thread(_sync, self._folder, key)
        except _FAILURES as error:
            raise _away("write to", error) from None

    async def _head(self, key: str) -> float:
        try:
            return float((await self._store.head_async(key))["last_modified"].timestamp())
        except _FAILURES as error:
            raise _away("read from", error) from None

    async def _delete(self, paths: list[str]) -> None:
        try:
            if paths:
                await self._store.delete_async(paths)
        except FileNotFoundError:  # another engine deleted it first
            return
        except _FAILURES as error:
            raise _away("delete from", error) from None


def _opened(storage: DocumentStorage) -> Any:
    parts = urlsplit(storage.url)
    try:
        if parts.scheme == "file":
            return LocalStore(unquote(parts.path), mkdir=True)
        plain = str(storage.options.get("endpoint", "")).startswith("http://")
        options: Any = {"allow_http": plain, "timeout": "30s", "connect_timeout": "5s"}
        keys: dict[str, Any] = dict(storage.options)
        return from_url(storage.url, client_options=options, retry_config=_PATIENCE, **keys)
    except (BaseError, OSError, TypeError, ValueError) as error:
        raise SettingsError([f"cannot open the repository {_shown(storage.url)!r}: {_first_line(error)}"]) from None


def _sync(folder: Path, key: str) -> None:
    """Let the file and the folders down to it survive a power cut; the object store only renames it into place."""
    path = folder / key
    for each in (path, *(parent for parent in path.parents if parent.is_relative_to(folder))):
        handle = os.open(each, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _folder(stream_id: str) -> str:
    """Return a name that every object store takes, whatever a stream is called."""
    return hashlib.sha256(stream_id.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _file(branch: str) -> str:
    return branch.replace("/", ".") or _ROOT


def _branch(file: str) -> str:
    return "" if file == _ROOT else file.replace(".", "/")


def _away(verb: str, error: Exception) -> RepositoryAway:
    return RepositoryAway(f"cannot {verb} the repository: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:300]


def _shown(url: str) -> str:
    """Return *url* without what stands before an @: it may be a secret."""
    parts = urlsplit(url)
    return url.replace(f"{parts.netloc}", parts.netloc.rpartition("@")[2]) if parts.netloc else url
