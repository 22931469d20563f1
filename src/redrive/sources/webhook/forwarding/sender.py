"""
Sends letters on to one destination.

Owns the request, the time it may take, and what an answer means: 2xx is the confirmation, a status that the operator
listed is the end, everything else is a failed attempt that `classify` judges. The address is the operator's; no letter
chooses it. Knows no retry and no breaker: the engine has them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpcore2

from redrive.core.letter import Letter  # noqa: TC001 - handlers' annotations are read at run time
from redrive.errors import Reject, SettingsError
from redrive.failpoints import hit
from redrive.sources.webhook.forwarding.headers import headers_of
from redrive.sources.webhook.forwarding.network import CheckedNetwork, Refused
from redrive.sources.webhook.signatures import standard

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.signals.otel import OpenTelemetry
    from redrive.sources.webhook.forwarding.forward import Forward

_READ = 65_536  # bytes of an answer that are read, so that the connection can be used again
_KEEP = 5.0  # seconds that an idle connection stays open
_wire = logging.getLogger("httpcore2")
if _wire.level == logging.NOTSET:  # at DEBUG it writes the headers of answers into the application's log
    _wire.setLevel(logging.INFO)


class ForwardFailed(Exception):
    """A destination did not confirm; *status_code* and *headers* say what it answered, if it did."""

    def __init__(self, message: str, status_code: int | None = None, headers: dict[str, str] | None = None) -> None:
        self.status_code, self.headers = status_code, headers or {}
        super().__init__(message)


class Forwarder:
    """Posts each letter to the address of *forward*; *key* signs it, *now* gives seconds since the epoch."""

    def __init__(
        self,
        forward: Forward,
        key: bytes | None,
        now: Callable[[], float],
        *,
        network: CheckedNetwork | None = None,
        tracing: Callable[[], OpenTelemetry | None] = lambda: None,
    ) -> None:
        self._forward, self._key, self._now, self._tracing = forward, key, now, tracing
        self._host = urlsplit(forward.url).hostname or ""
        try:
            self._network: Any = network or CheckedNetwork(forward.allow_private)
        except ValueError as error:
            raise SettingsError([f"the forward to {self._host!r} cannot allow such a network: {error}"]) from None
        self._pool: httpcore2.AsyncConnectionPool | None = None

    @property
    def breaker(self) -> str | None:
        """The name of the destination's breaker; None if the operator switched it off."""
        parts = urlsplit(self._forward.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"forward:{self._host}:{port}" if self._forward.breaker else None

    async def send(self, letter: Letter) -> None:
        """Post *letter*; return once the destination has confirmed it, else raise."""
        try:
            async with asyncio.timeout(self._forward.timeout):
                status, headers = await self._request(letter)
        except TimeoutError:
            raise ForwardFailed(f"{self._host} did not answer within {self._forward.timeout:g} s") from None
        except Refused as refused:
            raise ForwardFailed(str(refused)) from None
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
            raise ForwardFailed(f"{self._host} cannot be reached: {type(error).__name__}") from error
        if status in self._forward.terminal:
            raise Reject(f"{self._host} answered {status}, which ends this event")
        if not 200 <= status < 300:  # noqa: PLR2004 - HTTP's successes
            raise ForwardFailed(f"{self._host} answered {status}", status, headers)
        hit("forward.confirmed")

    async def close(self) -> None:
        """Close idle connections; a letter that is sent later opens new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    async def _request(self, letter: Letter) -> tuple[int, dict[str, str]]:
        tracing = self._tracing()
        if tracing is None:
            return await self._post(letter)
        with tracing.requesting(self._host, letter) as span:
            status, headers = await self._post(letter, span.carrier)
            span.answered(status)
        return status, headers

    async def _post(self, letter: Letter, trace: dict[str, str] | None = None) -> tuple[int, dict[str, str]]:
        if self._pool is None:
            self._pool = httpcore2.AsyncConnectionPool(
                max_connections=self._forward.concurrency, keepalive_expiry=_KEEP, network_backend=self._network
            )
        headers = headers_of(letter, original=self._forward.headers, signed=self._key is not None, trace=trace)
        if self._key is not None:
            headers += standard.sign(self._key, letter.id, int(self._now()), letter.payload)
        async with self._pool.stream("POST", self._forward.url, headers=headers, content=letter.payload) as answer:
            await _drain(answer)
            return answer.status, _told(answer.headers)


async def _drain(answer: httpcore2.Response) -> None:
    """Read the answer's body, but not beyond the bound; no one looks at it."""
    read = 0
    async for part in answer.aiter_stream():
        read += len(part)
        if read > _READ:
            return


def _told(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers that say when to come again."""
    found = {name.lower(): value.decode("latin-1") for name, value in headers}
    return {word.decode().title(): found[word] for word in (b"retry-after", b"date") if word in found}
