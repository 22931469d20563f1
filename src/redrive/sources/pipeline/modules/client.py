"""
The client of a module.

Owns the channel to a module's instances (load balancing, health, keep-alive, TLS, sizes), how many calls run at once,
and the deadline of a call. Every failed call becomes a `StepFailed` with its remedy. Knows no document, no retry and no
node: `failures` has the table, the caller the policy.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
import grpc.aio
import msgspec

from redrive.errors import SettingsError
from redrive.sources.pipeline.graph.model import MIB, RETRY_CODES, Tls
from redrive.sources.pipeline.modules.failures import (
    Remedy,
    Trouble,
    Word,
    closes_connections,
    failed_with,
    trouble_of,
)
from redrive.sources.pipeline.modules.tls_probe import disagreement

if TYPE_CHECKING:
    from collections.abc import Collection

    from redrive.core.trace_context import Carrier

_METHOD = "/redrive.pipeline.v1.PipeStepProcessorService/ProcessData"
_UNAVAILABLE = "UNAVAILABLE"
_ROUND_ROBIN = json.dumps({
    "loadBalancingConfig": [{"round_robin": {}}],
    "healthCheckConfig": {"serviceName": ""},  # instances that say NOT_SERVING get no calls; silence is health
})  # fmt: skip


class ModuleAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a module is and how it is called; nodes with equal addresses share a channel and its limits."""

    target: str  # `host:port`, `dns:///host:port` or `ipv4:a:port,b:port`: calls go round all addresses
    concurrency: int = 16  # calls at once, per engine
    max_message_bytes: int = 64 * MIB  # in either direction
    keepalive: float = 300.0  # seconds between pings
    ping_timeout: float = 20.0  # seconds without an answer to one, after which the connection is dead
    tls: Tls | None = None


class TlsFiles(NamedTuple):
    """The contents of the files that a node's `tls` names, as gRPC takes them."""

    ca: bytes | None = None
    key: bytes | None = None
    certificate: bytes | None = None


class ModuleClient:
    """Calls one module; make and use it on one event loop."""

    def __init__(self, address: ModuleAddress, files: TlsFiles | None = None) -> None:
        self.address, self.files = address, files or _read(address.tls)
        self._channel = _channel(address, self.files)
        self._call: Any = self._channel.unary_unary(_METHOD)  # bytes in, bytes out: the caller judges an answer
        self._slots = asyncio.Semaphore(address.concurrency)
        self._host = host_of(address.target)
        self._look: asyncio.Task[str] | None = None

    async def process(
        self, request: bytes, *, timeout: float, retry_codes: Collection[str] = RETRY_CODES,  # noqa: ASYNC109 - the deadline travels with the call
        trace: Carrier | None = None,
    ) -> bytes:  # fmt: skip
        """Return the module's answer to *request*, undecoded; the module is told of *trace*. Raise StepFailed."""
        metadata = tuple(trace.items()) if trace else None
        async with self._slots:
            try:
                answer: bytes = await self._call(request, timeout=timeout, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                failure = error
            except grpc.aio.UsageError as error:  # the channel was closed under us: the engine stops
                raise failed_with(Trouble(Remedy.RETRY, _UNAVAILABLE, str(error))) from None
            else:
                return answer
        raise failed_with(await self._trouble(failure, retry_codes)) from None

    async def close(self) -> None:
        """Close the channel; running calls end as cancelled."""
        await self._channel.close()

    async def _trouble(self, error: grpc.aio.AioRpcError, retry_codes: Collection[str]) -> Trouble:
        code, text = error.code().name, error.details() or ""
        trailers: Any = error.trailing_metadata() or ()
        found = trouble_of(code, text, trailers, retry_codes=retry_codes)
        if code == _UNAVAILABLE and self._host and not await _resolves(self._host):
            return Trouble(Remedy.HOLD, Word.HOST_NOT_FOUND, f"the host name {self._host!r} does not resolve")
        if closes_connections(code, text) and (why := await self._disagreement()):
            return Trouble(Remedy.HOLD, Word.TLS_FAILED, why)
        return found

    async def _disagreement(self) -> str:
        """Return why the module refuses this engine, if a look tells it; calls that fail together share one look."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(disagreement(self.address.target, self.address.tls))
        return await asyncio.shield(self._look)


class ModuleClients:
    """The clients of a pipeline: one per address, and those that it replaced until they are not used any more."""

    def __init__(self) -> None:
        self._clients: dict[ModuleAddress, ModuleClient] = {}
        self._open: list[ModuleClient] = []

    @property
    def targets(self) -> list[str]:
        """The targets of all open channels."""
        return [client.address.target for client in self._open]

    def at(self, address: ModuleAddress) -> ModuleClient:
        """Return the client of the module at *address*; one whose TLS files have changed gets a new channel."""
        found, files = self._clients.get(address), _read(address.tls)
        if found is None or found.files != files:
            found = self._clients[address] = ModuleClient(address, files)
            self._open.append(found)
        return found

    async def keep(self, used: Collection[ModuleClient]) -> None:
        """Close all clients but those that are *used*."""
        unused = [client for client in self._open if client not in used]
        self._open = [client for client in self._open if client in used]
        self._clients = {address: client for address, client in self._clients.items() if client in used}
        for client in unused:
            await client.close()

    async def close(self) -> None:
        """Close all channels."""
        await self.keep(())


def host_of(target: str) -> str:
    """Return the host name of *target*; "" if it has none to resolve, such as an address or a socket."""
    scheme, separator, rest = target.partition(":///")
    if separator:
        target = rest if scheme == "dns" else ""
    elif target.startswith(("ipv4:", "ipv6:", "unix:", "unix-abstract:", "xds:")):
        return ""
    elif target.startswith("dns:"):
        target = target.removeprefix("dns:").rpartition("/")[2]
    host = target.rpartition(":")[0].strip("[]") if ":" in target else target
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host
    return ""


async def _resolves(host: str) -> bool:
    """Whether *host* has an address: gRPC reports a name without one as UNAVAILABLE, like a module that is away."""
    try:
        await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return True


# ---------------------------------------------------------------------- the channel


def _channel(address: ModuleAddress, files: TlsFiles) -> grpc.aio.Channel:
    options = _options(address)
    if address.tls is None:
        return grpc.aio.insecure_channel(address.target, options=options)
    if address.tls.server_name:
        options.append(("grpc.ssl_target_name_override", address.tls.server_name))
    return grpc.aio.secure_channel(address.target, grpc.ssl_channel_credentials(*files), options=options)


def _options(address: ModuleAddress) -> list[tuple[str, Any]]:
    return [
        ("grpc.service_config", _ROUND_ROBIN),
        ("grpc.enable_retries", 0),  # the node's policy counts the calls
        ("grpc.max_send_message_length", address.max_message_bytes),
        ("grpc.max_receive_message_length", address.max_message_bytes),
        ("grpc.keepalive_time_ms", round(address.keepalive * 1000)),
        ("grpc.keepalive_timeout_ms", round(address.ping_timeout * 1000)),
        ("grpc.http2.ping_timeout_ms", round(address.ping_timeout * 1000)),  # what newer gRPC keeps to in its place
        ("grpc.http2.max_pings_without_data", 0),  # 0: any number; a slow call sends no data between pings
        # A module that is back must be found within a node's own backoff, not within gRPC's two minutes.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
    ]


def _read(tls: Tls | None) -> TlsFiles:
    return TlsFiles() if tls is None else TlsFiles(_bytes_of(tls.ca), _bytes_of(tls.key), _bytes_of(tls.certificate))


def _bytes_of(path: str | None) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingsError([f"cannot read the TLS file {path!r} of a module: {error.strerror}"]) from None
