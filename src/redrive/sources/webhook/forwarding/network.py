"""
Where a forward may connect to.

Owns the one lookup and the one check: a host name is resolved once, every answer is checked, and the connection goes
to an address that was checked. An address that the operator wrote literally, and `localhost`, need no check. Knows no
HTTP.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING, Any

import httpcore2
import ssrfguard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LOCAL = "localhost"
_LOOKUP_SECONDS = 5.0  # getaddrinfo has no limit of its own


class Refused(Exception):
    """The host of a forward resolves to an address that it may not connect to."""


class CheckedNetwork:
    """
    Opens connections for a client; *allowed* are networks that names may resolve into though they are not public.

    Raises ValueError for a network that cannot be allowed.
    """

    def __init__(self, allowed: Sequence[str] = (), *, resolver: Callable[..., Any] = socket.getaddrinfo) -> None:
        self._allowed = tuple(ipaddress.ip_network(each) for each in allowed)
        self._resolver = resolver
        self._backend = httpcore2.AnyIOBackend()
        self._policy(80)  # refuses now what it would refuse at each connection

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's signature
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> Any:
        """Connect to the first address of *host* that takes the connection; raise Refused if one may not be used."""
        addresses = await self.addresses(host, port)
        for address in addresses[:-1]:
            try:
                return await self._backend.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._backend.connect_tcp(addresses[-1], port, timeout, local_address, socket_options)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses that *host* may be reached at, all of them checked."""
        if _is_address(host):
            return [host]
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS):
                return await asyncio.to_thread(self._look_up, host, port)
        except TimeoutError:
            raise httpcore2.ConnectTimeout("the lookup of the host took too long") from None
        except OSError as error:
            raise httpcore2.ConnectError("the host has no address") from error

    def _look_up(self, host: str, port: int) -> list[str]:
        if host == _LOCAL:
            return self._loopback(port)
        policy = self._policy(port)
        try:
            target = policy.check_url(f"http://{host}:{port}/")
            found = ssrfguard.resolve(target, policy=policy, resolver=self._resolver)
        except ssrfguard.SSRFGuardError as error:
            raise Refused(
                f"{host!r} may not be forwarded to: {error}; write its address literally, or name its network in "
                "allow_private"
            ) from None
        return [str(address.ip) for address in found][: policy.max_connection_attempts]

    def _loopback(self, port: int) -> list[str]:
        """Return where `localhost` is: a name that people write, so it must be what they mean."""
        answers = self._resolver(_LOCAL, port, type=socket.SOCK_STREAM)
        found = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
        if not found or not all(ipaddress.ip_address(each).is_loopback for each in found):
            raise Refused("'localhost' does not resolve to a loopback address here; write the address literally")
        return found

    def _policy(self, port: int) -> ssrfguard.Policy:
        return ssrfguard.Policy(allowed_networks=self._allowed, allowed_ports=frozenset({port}))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
