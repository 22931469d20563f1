"""
The first relay: letters to an HTTP endpoint.

Owns the request: body, headers, time limit. An answer from 200 to 299 is the confirmation; any
other is raised, and `classify` reads its status and Retry-After. Redirects are not followed: a
POST that was redirected has not been kept by any service.
"""

from __future__ import annotations

import asyncio
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from redrive.core.letter import Letter  # noqa: TC001 - handlers' annotations are read at run time
from redrive.core.trace_context import carrier_of
from redrive.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_READ = 65_536  # bytes of an answer that are read and thrown away


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_given: Any) -> None:
        """Follow none: the answer is raised as it is."""


class HttpRelay:
    """
    Posts each letter's payload, as it is, to *url*.

    The request says `Idempotency-Key` (the letter's key, or its id), `Redrive-Id`, `Redrive-Kind`
    and `Redrive-Attempt`; *headers* are added and win. *timeout* is in seconds, per read or write.
    """

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None, timeout: float = 10.0) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise SettingsError(["cannot relay to this URL; it must be like https://partner.example/events"])
        self.url, self.timeout, self._headers = url, timeout, dict(headers or {})
        self._opener = urllib.request.build_opener(_NoRedirects)

    async def publish(self, letter: Letter) -> None:
        """Post *letter*; return once the endpoint has answered that it has it."""
        await asyncio.to_thread(self._post, letter)

    def _post(self, letter: Letter) -> None:
        request = urllib.request.Request(self.url, letter.payload, self._headers_of(letter), method="POST")  # noqa: S310 - checked above
        with self._opener.open(request, timeout=self.timeout) as answer:
            answer.read(_READ)

    def _headers_of(self, letter: Letter) -> dict[str, str]:
        said = {
            "Content-Type": letter.content_type,
            "Idempotency-Key": letter.idempotency_key or letter.id,
            "Redrive-Id": letter.id,
            "Redrive-Kind": letter.kind,
            "Redrive-Attempt": str(letter.attempts),
        }
        said |= {name.title(): value for name, value in carrier_of(letter.metadata).items()}
        return {name: _plain(value) for name, value in said.items()} | self._headers


def _plain(value: str) -> str:
    """Return *value* as a header can hold it; what is not printable ASCII is percent-encoded."""
    return quote(value, safe=_PRINTABLE, errors="surrogatepass")
