"""
The services of an engine on gRPC: for operators, and for documents that come without Kafka.

Owns their server: the token, reflection, and errors as statuses that carry the sentence and never a traceback. On any
address but loopback it refuses to start without a token. Decides nothing: `admin_desk` and `document_verbs` do.
"""

from __future__ import annotations

import hmac
import ipaddress
from typing import TYPE_CHECKING, Any

import grpc
from grpc_reflection.v1alpha import reflection

from redrive.errors import RedriveError, SettingsError, SourceError, StoreError
from redrive.sources.pipeline.admin.document_verbs import SERVICE as DOCUMENT_SERVICE
from redrive.sources.pipeline.admin.document_verbs import DocumentVerbs
from redrive.sources.pipeline.engine.topics import LARGEST
from redrive.sources.pipeline.protos import admin_pb2 as messages
from redrive.sources.pipeline.protos import admin_pb2_grpc, engine_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from redrive.sources.pipeline.admin.admin_desk import AdminDesk
    from redrive.sources.pipeline.engine.pipeline import Pipeline

    Reload = Callable[[messages.ReloadRequest], Awaitable[messages.ReloadResponse]]

_SERVICE = messages.DESCRIPTOR.services_by_name["PipelineAdminService"].full_name
_HEADER = "authorization"
SHORTEST_TOKEN = 16  # characters
GRACE = 2.0  # seconds that requests under way have when the server stops


def check_address(address: str, token: str) -> None:
    """Raise SettingsError if the admin service may not listen on *address* with *token*."""
    if token and len(token) < SHORTEST_TOKEN:
        raise SettingsError([f"the token of the admin service must have at least {SHORTEST_TOKEN} characters"])
    if not token and not is_loopback(address):
        told = f"the admin service would listen on {address!r}, which others reach"
        raise SettingsError([f"{told}; set pipeline_token in the settings, or use 127.0.0.1"])


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches *address*, such as 127.0.0.1:50050."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or address.startswith("unix:")


class AdminServer:
    """Serves *desk* on *address*, and takes documents for *engine* if there is one."""

    def __init__(
        self, desk: AdminDesk, address: str, *, token: str = "", reload: Reload | None = None,
        engine: Pipeline | None = None,
    ) -> None:  # fmt: skip
        check_address(address, token)
        # Without the first option two engines of one machine would share the address, and each answer some requests.
        options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", LARGEST)]
        self._server = grpc.aio.server(interceptors=[_TokenCheck(token)] if token else [], options=options)
        self._add(desk, reload, engine)
        self._address = address
        self.port = 0

    def _add(self, desk: AdminDesk, reload: Reload | None, engine: Pipeline | None) -> None:
        verbs: Any = _Servicer(desk, reload)
        admin_pb2_grpc.add_PipelineAdminServiceServicer_to_server(verbs, self._server)
        names = [_SERVICE, reflection.SERVICE_NAME]
        if engine is not None:
            documents: Any = DocumentVerbs(engine)
            engine_pb2_grpc.add_PipelineEngineServiceServicer_to_server(documents, self._server)
            names.append(DOCUMENT_SERVICE)
        reflection.enable_server_reflection(names, self._server)

    async def start(self) -> None:
        """Listen; raise SourceError if the address is taken."""
        try:
            self.port = self._server.add_insecure_port(self._address)
        except RuntimeError:
            raise SourceError(
                f"cannot serve the admin service on {self._address!r}: the address is taken, or not of this machine; "
                "choose another with --admin"
            ) from None
        await self._server.start()

    async def stop(self) -> None:
        """Let requests under way end, and stop."""
        await self._server.stop(GRACE)


class _TokenCheck(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # its package ships no types
    """Lets requests with the token through."""

    def __init__(self, token: str) -> None:
        self._wanted = f"Bearer {token}".encode()

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Answer UNAUTHENTICATED unless the token is right."""
        given = dict(details.invocation_metadata).get(_HEADER, "")
        if hmac.compare_digest(str(given).encode(), self._wanted):
            return await continuation(details)
        return grpc.unary_unary_rpc_method_handler(_refuse)


async def _refuse(_request: Any, context: Any) -> None:
    told = "the token is missing or wrong; set pipeline_token in the settings"
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, told)


class _Servicer:
    """The verbs of the service by their names on the wire."""

    def __init__(self, desk: AdminDesk, reload: Reload | None) -> None:
        self.GetGraph, self.ListNodes = _unary(desk.get_graph), _unary(desk.list_nodes)
        self.Peek, self.Trace = _unary(desk.peek), _unary(desk.trace)
        self.Pause, self.Resume = _unary(desk.pause), _unary(desk.resume)
        self.Replay, self.Readmit = _stream(desk.replay), _stream(desk.readmit)
        self.Quarantine, self.Drain = _stream(desk.quarantine), _stream(desk.drain)
        self.Reload = _unary(reload or _no_reload)


async def _no_reload(_request: messages.ReloadRequest) -> messages.ReloadResponse:
    raise SourceError("this engine was not started from a file, so there is nothing to load again")


def _unary(verb: Callable[[Any], Awaitable[Any]]) -> Any:
    async def call(request: Any, context: Any) -> Any:
        try:
            return await verb(request)
        except RedriveError as error:
            await context.abort(_status(error), str(error))

    return call


def _stream(verb: Callable[[Any], AsyncIterator[Any]]) -> Any:
    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for answer in verb(request):
                yield answer
        except RedriveError as error:
            await context.abort(_status(error), str(error))

    return call


def _status(error: RedriveError) -> grpc.StatusCode:
    return grpc.StatusCode.UNAVAILABLE if isinstance(error, StoreError) else grpc.StatusCode.FAILED_PRECONDITION
