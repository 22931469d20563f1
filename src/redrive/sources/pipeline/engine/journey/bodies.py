"""
The bodies of documents between two nodes.

Owns when a body travels with its document and when it is kept in the graph's repository, what a repository that is
away means for a step, and the notes by which bodies are deleted one day. Without a repository all bodies travel.
Knows no Kafka and no module.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, TypeVar

from google.protobuf.message import DecodeError

from redrive.core.decide import next_try
from redrive.core.policy import RetryPolicy
from redrive.sources.pipeline.modules.failures import Remedy, StepFailed, Trouble, Word, quarantined
from redrive.sources.pipeline.protos.document_pb2 import DocumentReference, PipeDoc, PipeStream

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from redrive.engine.clock import Clock
    from redrive.sources.pipeline.documents.repository import DocumentRepository
    from redrive.sources.pipeline.graph.model import Graph

_log = logging.getLogger("redrive.pipeline")
_T = TypeVar("_T")
_AGAIN = RetryPolicy.exponential(0.5, 30.0, 2.0, 3)


class DocumentBodies(Protocol):
    """Where bodies are between two nodes."""

    async def load(self, stream: PipeStream) -> PipeDoc:
        """Return the whole document of *stream*; raise StepFailed if it cannot be had."""

    async def keep(self, stream: PipeStream, document: PipeDoc) -> None:
        """Put *document* into *stream*: itself, or by reference once its body is kept; raise StepFailed."""

    async def put_aside(self, value: bytes | None, *, with_body: bool) -> bytes | None:
        """Return the stream in *value* as a dead letter has it: kept, and by reference unless *with_body*."""

    async def ended(self, stream: PipeStream) -> None:
        """Note that a branch has reached the end."""


class TravellingBodies:
    """All bodies travel with their documents, because the graph names no repository."""

    async def load(self, stream: PipeStream) -> PipeDoc:
        """Return the document of *stream*; raise StepFailed if it travels by reference."""
        if stream.HasField("document_ref"):
            raise StepFailed(quarantined(Word.DOCUMENT_MISSING, "the graph names no repository for its reference"))
        return stream.document

    async def keep(self, stream: PipeStream, document: PipeDoc) -> None:
        """Put *document* itself into *stream*."""
        stream.document.CopyFrom(document)

    async def put_aside(self, value: bytes | None, *, with_body: bool) -> bytes | None:  # noqa: ARG002 - there is no other place for it
        """Return *value* as it is: a replay needs the body."""
        return value

    async def ended(self, stream: PipeStream) -> None:
        """Do nothing: there is no body to delete."""


class KeptBodies:
    """Bodies above the graph's limit are kept in *repository*."""

    def __init__(self, repository: DocumentRepository, clock: Clock) -> None:
        self._repository, self._clock = repository, clock
        self._limit, self._is_noted = repository.storage.inline_limit, repository.storage.keep_days is not None

    async def load(self, stream: PipeStream) -> PipeDoc:
        """Return the document of *stream* with its body; raise StepFailed."""
        if not stream.HasField("document_ref"):
            return stream.document
        reference = stream.document_ref
        document = PipeDoc()
        document.CopyFrom(reference.document)
        document.doc_id = document.doc_id or reference.doc_id
        document.body = await _asked(self._repository.get(reference.key, reference.sha256))
        return document

    async def keep(self, stream: PipeStream, document: PipeDoc) -> None:
        """Put *document* into *stream*: itself, or by reference once its body is kept; raise StepFailed."""
        if len(document.body) <= self._limit:
            stream.document.CopyFrom(document)
        else:
            stream.document_ref.CopyFrom(await self._reference(stream, document))

    async def put_aside(self, value: bytes | None, *, with_body: bool) -> bytes | None:
        """Return the stream in *value* as a dead letter has it; waits for a repository that is away."""
        try:
            stream = PipeStream.FromString(value or b"")
        except DecodeError:
            return value
        tries = 0
        while True:
            try:
                return await self._put_aside(stream, value, with_body=with_body)
            except StepFailed as error:
                tries += 1
                _log.warning("a dead letter waits for the repository: %s", error.trouble.word)
                await self._clock.sleep(next_try(tries, _AGAIN, self._clock.draw()).delay)

    async def ended(self, stream: PipeStream) -> None:
        """Note that a branch has reached the end; a note that is missing only keeps its bodies longer."""
        if not self._is_noted:
            return
        try:
            await _asked(self._repository.note_end(stream.stream_id, stream.branch))
        except StepFailed as error:
            _log.warning("the end of a branch is not noted, its bodies stay: %s", error.trouble.word)

    async def _put_aside(self, stream: PipeStream, value: bytes | None, *, with_body: bool) -> bytes | None:
        if self._is_noted:
            await _asked(self._repository.note_hold(stream.stream_id, stream.branch))
        if with_body or not stream.HasField("document"):
            return value
        stream.document_ref.CopyFrom(await self._reference(stream, stream.document))
        return stream.SerializeToString()

    async def _reference(self, stream: PipeStream, document: PipeDoc) -> DocumentReference:
        key, digest = await _asked(self._repository.put(stream.stream_id, stream.branch, document.body))
        slim = PipeDoc()
        slim.CopyFrom(document)
        slim.ClearField("body")
        slim.body_size = len(document.body)
        return DocumentReference(
            doc_id=document.doc_id, document=slim, key=key, size=len(document.body), sha256=digest,
            account_id=stream.metadata.account_id,
        )  # fmt: skip


def bodies_of(graph: Graph, clock: Clock) -> DocumentBodies:
    """Return where *graph* keeps bodies."""
    if graph.documents is None:
        return TravellingBodies()
    from redrive.sources.pipeline.documents.repository import DocumentRepository  # noqa: PLC0415 - few graphs need it

    return KeptBodies(DocumentRepository(graph.documents), clock)


async def _asked(question: Awaitable[_T]) -> _T:
    """Return what the repository answers; raise StepFailed: a body that is gone cannot be had by another call."""
    from redrive.sources.pipeline.documents.repository import BodyMissing, RepositoryAway  # noqa: PLC0415 - as above

    try:
        return await question
    except BodyMissing as error:
        raise StepFailed(quarantined(Word.DOCUMENT_MISSING, str(error))) from None
    except RepositoryAway as error:
        raise StepFailed(Trouble(Remedy.RETRY, Word.REPOSITORY_AWAY, str(error))) from None
