"""
The engine's service on gRPC: `Submit` and `ProcessNode`.

Owns how a request becomes a call of the engine, and a refusal a status. Decides nothing: `engine.arrivals` does. Knows
no server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from redrive.core.trace_context import carrier_of
from redrive.sources.pipeline.engine.arrivals import NotTaken
from redrive.sources.pipeline.protos import engine_pb2 as messages

if TYPE_CHECKING:
    from redrive.core.trace_context import Carrier
    from redrive.sources.pipeline.engine.pipeline import Pipeline

SERVICE = messages.DESCRIPTOR.services_by_name["PipelineEngineService"].full_name


class DocumentVerbs:
    """Hands documents of callers to *engine*."""

    def __init__(self, engine: Pipeline) -> None:
        self._engine = engine

    async def Submit(self, request: messages.SubmitRequest, context: Any) -> messages.SubmitResponse:  # noqa: N802
        """Put the document into a topic; answer when the broker has confirmed it."""
        try:
            _needs(request, "document")
            sent = await self._engine.submit(
                request.document, to=request.node_id, stream_id=request.stream_id, params=request.context_params,
                trace=_trace(context),
            )  # fmt: skip
        except NotTaken as error:
            await context.abort(grpc.StatusCode[error.code], str(error))
        return messages.SubmitResponse(
            stream_id=sent.stream_id, topic=sent.topic, partition=sent.partition, offset=sent.offset
        )

    async def ProcessNode(self, request: messages.ProcessNodeRequest, context: Any) -> messages.ProcessNodeResponse:  # noqa: N802
        """Take the document through a node; answer when each of its branches is in a safe place."""
        try:
            _needs(request, "stream")
            places = await self._engine.process(request.stream, request.node_id, trace=_trace(context))
        except NotTaken as error:
            await context.abort(grpc.StatusCode[error.code], str(error))
        return messages.ProcessNodeResponse(places=places)


def _needs(request: Any, field: str) -> None:
    if not request.HasField(field):
        raise NotTaken("INVALID_ARGUMENT", f"the request has no {field}")


def _trace(context: Any) -> Carrier:
    """Return the trace that the caller names in the metadata of its call."""
    return carrier_of(dict(context.invocation_metadata() or ()))
