"""
New documents.

Owns how a document enters a graph: as a stream in the input topic of its entry node, confirmed by the broker before
`send` returns. Knows no node at work.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from redrive.core.trace_context import continuing
from redrive.engine.clock import SystemClock, new_id, unix_ms
from redrive.errors import SettingsError, SourceError
from redrive.sources.kafka.records.output import Output
from redrive.sources.pipeline.engine.journey.bodies import bodies_of
from redrive.sources.pipeline.engine.journey.streams import new_stream
from redrive.sources.pipeline.engine.outputs import ConfirmedOutputs
from redrive.sources.pipeline.graph import names
from redrive.sources.pipeline.modules.failures import StepFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redrive.core.trace_context import Carrier
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.pipeline.engine.journey.bodies import DocumentBodies
    from redrive.sources.pipeline.graph.model import Graph, Node
    from redrive.sources.pipeline.protos.document_pb2 import PipeDoc


class SentDocument(NamedTuple):
    """A document that the broker has confirmed."""

    stream_id: str
    doc_id: str
    topic: str
    partition: int
    offset: int | None  # None if the broker did not say it


async def send_documents(
    graph: Graph, kafka: KafkaConfig, documents: Sequence[PipeDoc], *, to: str = "", stream_id: str = ""
) -> list[SentDocument]:
    """Send *documents* to the entry node of *graph*, or to the node *to*; return once the broker has confirmed all."""
    node, clock = entry_node(graph, to), SystemClock()
    bodies, outputs = bodies_of(graph, clock), ConfirmedOutputs(kafka, clock)
    try:
        entering = [await entering_document(graph, node, each, bodies, stream_id=stream_id) for each in documents]
        return await asyncio.gather(*(sent_document(outputs, each) for each in entering))
    finally:
        await outputs.close()


class EnteringDocument(NamedTuple):
    """A document whose body is kept, and the message that carries it into the graph."""

    stream_id: str
    doc_id: str
    message: Output


async def entering_document(
    graph: Graph, node: Node, document: PipeDoc, bodies: DocumentBodies, *, stream_id: str = "",
    params: Mapping[str, str] | None = None, trace: Carrier | None = None,
) -> EnteringDocument:  # fmt: skip
    """Return *document* on its way to *node*, with its body kept if it is large; raise SourceError."""
    stream = new_stream(graph, node, document, stream_id=stream_id or new_id(), now_ms=unix_ms())
    stream.metadata.context_params.update(params or {})
    try:
        await bodies.keep(stream, document)
    except StepFailed as error:
        raise SourceError(f"cannot send the document {document.doc_id!r}: {error.trouble.text}; try again") from None
    message = Output(
        topic=names.input_topic(graph, node), key=stream.stream_id.encode(), value=stream.SerializeToString(),
        headers=tuple(continuing((), trace or {})),
    )  # fmt: skip
    return EnteringDocument(stream.stream_id, document.doc_id, message)


async def sent_document(outputs: ConfirmedOutputs, entering: EnteringDocument) -> SentDocument:
    """Send *entering*; return where it is once the broker has confirmed it. Raise TooLarge."""
    partition, offset = await outputs.place(entering.message)
    return SentDocument(entering.stream_id, entering.doc_id, entering.message.topic, partition, offset)


def entry_node(graph: Graph, name: str = "") -> Node:
    """Return the node *name*, or the one that new documents go to; raise SettingsError if that is not clear."""
    if name and name not in graph.by_id:
        raise SettingsError([f"the graph has no node {name!r}; it has {', '.join(graph.by_id)}"])
    if name:
        return graph.by_id[name]
    if len(graph.entries) != 1:
        listed = ", ".join(node.id for node in graph.entries) or "none"
        raise SettingsError([f"it is not clear where documents enter the graph ({listed}); name a node, or set entry"])
    return graph.entries[0]
