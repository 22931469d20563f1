"""
Whether a module and the engine disagree about TLS.

Owns a look at a module whose connections close: gRPC reports a module that refuses the engine's certificate, or speaks
TLS to an engine that does not, like one that is away. The look makes a connection of its own and sends nothing but a
handshake. What it cannot tell for sure counts as no disagreement. Knows no gRPC and no document.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.sources.pipeline.graph.model import Tls

_LIMIT = 3.0  # seconds for a handshake, and for the module's first bytes
_LOOKS = 2  # a module that dies right after a handshake is away at the second look
_SPEAKS_TLS = "the module speaks TLS, and the node has no `tls`; add it to the node"
_WANTS_ONE = "the module asks for a certificate; give the node's `tls` a `certificate` and its `key`"
_WANTS_OTHER = (
    "the module does not accept the engine's certificate; give the node's `tls` one of an authority it trusts"
)


def place_of(target: str) -> tuple[str, int] | None:
    """Return the host and port of *target*, the first if it names several; None if it has none, such as a socket."""
    if target.startswith(("unix:", "unix-abstract:", "xds:")):
        return None
    first = target.rpartition("/")[2].split(",")[0]
    for scheme in ("dns:", "ipv4:", "ipv6:"):
        first = first.removeprefix(scheme)
    host, _, port = first.rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdecimal() else None


async def disagreement(target: str, tls: Tls | None) -> str:
    """Return what the module at *target* and an engine with *tls* disagree about, with the way out; "" if unknown."""
    place = place_of(target)
    if place is None:
        return ""
    for _ in range(_LOOKS):
        found = await _look(*place, tls)
        if not found:
            return ""
    return found


async def _look(host: str, port: int, tls: Tls | None) -> str:
    try:
        async with asyncio.timeout(_LIMIT):
            reader, writer = await asyncio.open_connection(host, port, ssl=_context(tls), server_hostname=host)
    except ssl.SSLError as error:
        return _refused(tls, error) if _is_alert(error) else ""
    except OSError:
        return ""
    try:
        return await _after_handshake(reader, tls) if tls else _refused(tls)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _after_handshake(reader: asyncio.StreamReader, tls: Tls) -> str:
    """Return why the module closes the connection, "" if it does not: in TLS 1.3 it refuses after the handshake."""
    try:
        async with asyncio.timeout(_LIMIT):
            return "" if await reader.read(1) else _refused(tls)
    except TimeoutError:
        return ""
    except ssl.SSLError as error:
        return _refused(tls, error)
    except OSError:
        return _refused(tls)


def _context(tls: Tls | None) -> ssl.SSLContext:
    """Return a context that accepts any module: whether the engine trusts the module is gRPC's question."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if tls is not None and tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key)
    return context


def _is_alert(error: ssl.SSLError) -> bool:
    return "ALERT" in (error.reason or "")


def _refused(tls: Tls | None, error: ssl.SSLError | None = None) -> str:
    if tls is None:
        return _SPEAKS_TLS
    why = _WANTS_ONE if tls.certificate is None else _WANTS_OTHER
    return f"{why} ({error.reason})" if error is not None else why
