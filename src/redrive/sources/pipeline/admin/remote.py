"""
The admin service of an engine, from outside.

Owns the client: the same verbs as `admin_desk`, asked of a running engine, and its refusals as errors of ours. Knows
no command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from redrive.errors import SourceError
from redrive.sources.pipeline.protos import admin_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redrive.sources.pipeline.protos import admin_pb2 as messages

ENGINE = "127.0.0.1:50050"
_LIMIT = 60.0  # seconds for one answer; streams have none


class RemoteDesk:
    """Asks the engine at *address*."""

    def __init__(self, address: str = ENGINE, *, token: str = "") -> None:
        self._address = address
        self._channel = grpc.aio.insecure_channel(address)
        self._stub: Any = admin_pb2_grpc.PipelineAdminServiceStub(self._channel)
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    # ------------------------------------------------------------------ one answer

    async def get_graph(self, request: messages.GetGraphRequest) -> messages.GetGraphResponse:
        """Return the engine's graph."""
        found: messages.GetGraphResponse = await self._ask("GetGraph", request)
        return found

    async def list_nodes(self, request: messages.ListNodesRequest) -> messages.ListNodesResponse:
        """Return the status of nodes."""
        found: messages.ListNodesResponse = await self._ask("ListNodes", request)
        return found

    async def peek(self, request: messages.PeekRequest) -> messages.PeekResponse:
        """Return letters of a lane."""
        found: messages.PeekResponse = await self._ask("Peek", request)
        return found

    async def trace(self, request: messages.TraceRequest) -> messages.TraceResponse:
        """Return where a document is."""
        found: messages.TraceResponse = await self._ask("Trace", request)
        return found

    async def pause(self, request: messages.PauseRequest) -> messages.NodeStatus:
        """Pause a node."""
        found: messages.NodeStatus = await self._ask("Pause", request)
        return found

    async def resume(self, request: messages.ResumeRequest) -> messages.NodeStatus:
        """Let a node go on."""
        found: messages.NodeStatus = await self._ask("Resume", request)
        return found

    async def reload(self, request: messages.ReloadRequest) -> messages.ReloadResponse:
        """Let the engine read its graph again."""
        found: messages.ReloadResponse = await self._ask("Reload", request)
        return found

    # ------------------------------------------------------------------ several

    def replay(self, request: messages.ReplayRequest) -> AsyncIterator[messages.ReplayProgress]:
        """Send dead letters back; yield the progress."""
        return self._follow("Replay", request)

    def readmit(self, request: messages.ReplayRequest) -> AsyncIterator[messages.ReplayProgress]:
        """Send quarantined documents back; yield the progress."""
        return self._follow("Readmit", request)

    def quarantine(self, request: messages.QuarantineRequest) -> AsyncIterator[messages.ReplayProgress]:
        """Move dead letters to quarantine; yield the progress."""
        return self._follow("Quarantine", request)

    def drain(self, request: messages.DrainRequest) -> AsyncIterator[messages.NodeStatus]:
        """Drain a node; yield its status."""
        return self._follow("Drain", request)

    async def _ask(self, verb: str, request: Any) -> Any:
        try:
            return await getattr(self._stub, verb)(request, metadata=self._metadata, timeout=_LIMIT)
        except grpc.aio.AioRpcError as error:
            raise self._refusal(error) from None

    async def _follow(self, verb: str, request: Any) -> AsyncIterator[Any]:
        try:
            async for answer in getattr(self._stub, verb)(request, metadata=self._metadata):
                yield answer
        except grpc.aio.AioRpcError as error:
            raise self._refusal(error) from None

    def _refusal(self, error: grpc.aio.AioRpcError) -> SourceError:
        if error.code() is grpc.StatusCode.UNAVAILABLE and "store" not in (error.details() or ""):
            return SourceError(
                f"no engine answers at {self._address}; start one with `redrive pipeline run GRAPH`, name its address "
                "with --engine, or ask the broker itself with --graph GRAPH"
            )
        return SourceError(error.details() or f"the engine at {self._address} answered {error.code().name}")
