"""A real gRPC server as a module, whose answers a test writes down."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from redrive.sources.pipeline.protos.module_pb2 import OUTCOME_SUCCESS, ProcessDataRequest, ProcessDataResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

SERVICE = "redrive.pipeline.v1.PipeStepProcessorService"
BIG = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def passed_on(request: ProcessDataRequest, **changes: Any) -> ProcessDataResponse:
    """Return the answer of a module that is content."""
    return ProcessDataResponse(outcome=OUTCOME_SUCCESS, output_doc=request.document, **changes)


class ScriptedModule:
    """
    Answers with what *script* returns for a request and the context of its call.

    A script may be async; it returns a response, or bytes that are sent as they are.
    """

    def __init__(self, script: Callable[..., Any] = lambda request, _context: passed_on(request)) -> None:
        self.script, self.calls, self.port = script, [], 0

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self, port: int = 0, credentials: Any = None, options: Any = ()) -> None:
        self._server = grpc.aio.server(options=[*BIG, *options])
        handler = grpc.unary_unary_rpc_method_handler(self._answer)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"ProcessData": handler}),)
        )
        address = f"127.0.0.1:{port or self.port}"
        bound = (
            self._server.add_insecure_port(address)
            if credentials is None
            else self._server.add_secure_port(address, credentials)
        )
        self.port = bound
        await self._server.start()

    async def stop(self, grace: float = 0) -> None:
        await self._server.stop(grace)

    async def _answer(self, raw: bytes, context: Any) -> bytes:
        request = ProcessDataRequest.FromString(raw)
        self.calls.append(request)
        said = self.script(request, context)
        if asyncio.iscoroutine(said):
            said = await said
        return said if isinstance(said, bytes) else said.SerializeToString()


@contextlib.asynccontextmanager
async def serving(*scripts: Callable[..., Any]) -> AsyncIterator[Any]:
    """Run a module for each script; yield one, or the list."""
    modules = [ScriptedModule(script) for script in scripts] or [ScriptedModule()]
    for each in modules:
        await each.start()
    try:
        yield modules[0] if len(modules) == 1 else modules
    finally:
        for each in modules:
            await each.stop()
