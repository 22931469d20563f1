"""
A module made of an async function.

Owns the gRPC server around a user's function: what its return value and its exceptions say to the engine, the
registration, health, reflection, TLS, and an end in which running calls finish. Knows no engine and no graph.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
import grpc.aio
import msgspec
from google.protobuf.json_format import ParseDict
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from redrive.engine.worker.stop_signals import hearing
from redrive.errors import HandlerError, SettingsError
from redrive.signals.log import write
from redrive.sources.pipeline.graph.model import MIB, Tls
from redrive.sources.pipeline.modules.answers import answer_of, fail
from redrive.sources.pipeline.protos import module_pb2, module_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from redrive.sources.pipeline.modules.answers import Returned
    from redrive.sources.pipeline.protos.document_pb2 import PipeDoc

    Processing: TypeAlias = (
        Callable[[PipeDoc], Awaitable[Returned]]
        | Callable[[PipeDoc, module_pb2.ProcessDataRequest], Awaitable[Returned]]
    )

SERVICE = "redrive.pipeline.v1.PipeStepProcessorService"
_WITH_REQUEST = 2  # parameters
_LOOK, _CALM, _MOST_LOOKS = 0.05, 4, 40  # seconds, and looks in a row without a call; a caller may go on for ever
_PING = 10_000  # ms; engines may ask so often whether the connection lives


class ModuleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a module says about itself, and its limits."""

    name: str
    version: str = ""
    description: str = ""
    config_schema: dict[str, Any] = {}
    concurrency: int | None = None  # calls at once; more are refused as RESOURCE_EXHAUSTED, which engines retry
    max_message_bytes: int = 64 * MIB


class Module:
    """An async function as a module: serve it, or listen in a test."""

    def __init__(self, function: Processing, options: ModuleOptions) -> None:
        self.options, self._function, self._registration = options, function, _registration(options)

    async def serve(self, address: str, *, tls: Tls | None = None, drain: float = 30.0) -> None:
        """
        Serve on *address* until SIGTERM or SIGINT.

        Calls under way then have *drain* seconds to finish; a second signal ends them.
        """
        stop, hurry = asyncio.Event(), asyncio.Event()

        def stop_or_hurry() -> None:
            (hurry if stop.is_set() else stop).set()

        with hearing(stop_or_hurry):
            async with self.listening(address, tls=tls, drain=drain, hurry=hurry) as bound:
                write("info", "redrive.module.started", {"module": self.options.name, "address": bound})
                await stop.wait()
        write("info", "redrive.module.stopped", {"module": self.options.name, "address": bound})

    @asynccontextmanager
    async def listening(
        self, address: str, *, tls: Tls | None = None, drain: float = 30.0, hurry: asyncio.Event | None = None
    ) -> AsyncIterator[str]:
        """Serve on *address* inside the block; give the address with the port that was taken, if it names port 0."""
        server = grpc.aio.server(
            options=_channel_options(self.options), maximum_concurrent_rpcs=self.options.concurrency
        )
        service = _ModuleService(self._function, self._registration)
        module_pb2_grpc.add_PipeStepProcessorServiceServicer_to_server(service, server)
        healthy = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        bound = _bind(server, address, tls)
        await server.start()
        for name in ("", SERVICE):
            await healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
        try:
            yield bound
        finally:
            await healthy.enter_graceful_shutdown()  # engines send their next calls elsewhere
            await service.drain(drain, hurry or asyncio.Event())
            await server.stop(None)


def module(
    function: Processing,
    *,
    name: str = "",
    version: str = "",
    description: str = "",
    config_schema: dict[str, Any] | None = None,
    concurrency: int | None = None,
    max_message_bytes: int = 64 * MIB,
) -> Module:
    """
    Return *function* as a module.

    It takes a PipeDoc, and as a second argument, if it has one, the whole ProcessDataRequest. A document that it
    returns goes on; None means that it skipped the document. Reject means a logical failure: the input goes on, and
    the history says why. RetryAfter, and every other exception, mean that the engine calls again.
    """
    if not any(map(inspect.iscoroutinefunction, (function, type(function).__call__))):
        raise HandlerError(f"cannot make a module of {function!r}: it must be an async function")
    options = ModuleOptions(
        name=name or getattr(function, "__name__", "module"),
        version=version,
        description=description or (inspect.getdoc(function) or "").split("\n", 1)[0],
        config_schema=config_schema or {},
        concurrency=concurrency,
        max_message_bytes=max_message_bytes,
    )
    return Module(function, options)


class _ModuleService(module_pb2_grpc.PipeStepProcessorServiceServicer):
    """Answers the two calls of a module on one server, until that is drained."""

    def __init__(self, function: Processing, registration: module_pb2.ServiceRegistration) -> None:
        self._function: Any = function
        self._takes_request = _parameters(function) >= _WITH_REQUEST
        self._registration = registration
        self._running, self._refused, self._is_leaving = 0, 0, False

    async def drain(self, limit: float, hurry: asyncio.Event) -> None:
        """
        Take no more calls; return when those under way have finished, after *limit* seconds, or when *hurry* is set.

        A server that is stopped cancels the calls that it has received and not begun, and a cancelled call is none
        that engines try again. So this refuses calls, in words that they do try again, until engines have heard that
        the module goes.
        """
        self._is_leaving = True
        quiet = asyncio.ensure_future(self._quiet())
        hurrying = asyncio.ensure_future(hurry.wait())
        await asyncio.wait({quiet, hurrying}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        quiet.cancel()
        hurrying.cancel()

    async def _quiet(self) -> None:
        """Return once nothing runs and callers have heard from `health` that the module goes: no more calls come."""
        calm = looks = 0
        while calm < _CALM and looks < _MOST_LOOKS:
            refused = self._refused
            await asyncio.sleep(_LOOK)  # several short ones: a busy loop may end one before it has seen what came
            calm = calm + 1 if not self._running and self._refused == refused else 0
            looks += not self._running

    async def ProcessData(self, request: module_pb2.ProcessDataRequest, context: Any) -> module_pb2.ProcessDataResponse:  # noqa: N802
        """Call the function; every exception of its becomes an answer or a status."""
        if self._is_leaving:
            self._refused += 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the module stops; call again")
        given = (request.document, request) if self._takes_request else (request.document,)
        self._running += 1
        try:
            return answer_of(await self._function(*given))
        except Exception as error:  # noqa: BLE001 - the function is the user's
            return await fail(error, context)
        finally:
            self._running -= 1

    async def GetServiceRegistration(self, _request: Any, _context: Any) -> module_pb2.ServiceRegistration:  # noqa: N802
        """Say what this module is."""
        return self._registration


def _registration(options: ModuleOptions) -> module_pb2.ServiceRegistration:
    said = module_pb2.ServiceRegistration(
        module_name=options.name,
        version=options.version,
        description=options.description,
        max_message_bytes=options.max_message_bytes,
    )
    if options.config_schema:
        ParseDict(options.config_schema, said.json_config_schema)
    return said


def _parameters(function: Any) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = [each for each in inspect.signature(function).parameters.values() if each.kind in kinds]
    return len([each for each in given if each.default is inspect.Parameter.empty])


def _channel_options(options: ModuleOptions) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", options.max_message_bytes),
        ("grpc.max_send_message_length", options.max_message_bytes),
        ("grpc.so_reuseport", 0),  # two modules on one port would share its calls without a word
        ("grpc.http2.min_ping_interval_without_data_ms", _PING),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _PING),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def _bind(server: grpc.aio.Server, address: str, tls: Tls | None) -> str:
    try:
        port = server.add_secure_port(address, _credentials(tls)) if tls else server.add_insecure_port(address)
    except (RuntimeError, OSError) as error:
        why = str(error).split(";")[0][:200]
        raise SettingsError([f"cannot serve the module on {address!r}: {why}; give a free HOST:PORT"]) from None
    return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    """Return the server's credentials; with `ca` it takes only engines whose certificate that authority has signed."""
    if tls.certificate is None or tls.key is None:
        raise SettingsError(["a module that serves TLS needs `certificate` and `key`, the paths of two PEM files"])
    try:
        pair = (Path(tls.key).read_bytes(), Path(tls.certificate).read_bytes())
        ca = Path(tls.ca).read_bytes() if tls.ca else None
    except OSError as error:
        raise SettingsError([f"cannot read {error.filename!r} for TLS: {error.strerror}"]) from None
    return grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=ca is not None)
