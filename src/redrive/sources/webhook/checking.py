"""
A source and its secrets, ready to check requests and to read the events in them.

Owns which scheme stands behind a preset, and what the schemes need of a request. Knows no HTTP server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.sources.webhook.events.reading import EventReader
from redrive.sources.webhook.secrets import resolve
from redrive.sources.webhook.signatures import providers, standard, twilio
from redrive.sources.webhook.signatures.verdict import Message, Secret, SignatureVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redrive.sources.webhook.source import Source

    Verify = Callable[[Message, Sequence[Secret], float], SignatureVerdict]

_ACCEPTED = SignatureVerdict()
_STANDARD = ("standard", "plain")


class Checker:
    """Checks the requests of one source; raises SettingsError if its secrets cannot be read."""

    def __init__(self, source: Source, read: Callable[[str], str]) -> None:
        self.source = source
        whose = f"source {source.name!r}"
        self._secrets = resolve(whose, source.secrets, read, is_standard=source.preset in _STANDARD)
        self._verify = _verifier(source)
        self.events = EventReader(source)

    def check(self, headers: Sequence[tuple[bytes, bytes]], query: bytes, body: bytes, now: float) -> SignatureVerdict:
        """Return whether the request is the source's own; *now* is in seconds since the epoch."""
        if self.source.insecure:
            return _ACCEPTED
        return self._verify(Message(headers, body, self._url(query)), self._secrets, now)

    def _url(self, query: bytes) -> str:
        """Return the address that the sender used: as it is known outside, with the query of this request."""
        public = self.source.public_url or ""
        return f"{public}?{query.decode('latin-1')}" if query else public


def _verifier(source: Source) -> Verify:
    tolerance = source.tolerance
    if source.preset in _STANDARD:
        return lambda message, secrets, now: standard.verify(message, secrets, now, tolerance)
    if source.preset == "stripe":
        return lambda message, secrets, now: providers.verify_stripe(message, secrets, now, tolerance)
    if source.preset == "twilio":
        return twilio.verify
    return scheme_of(source).verify


def scheme_of(source: Source) -> providers.Hmac:
    """Return the HMAC of a source whose preset is one HMAC in one header."""
    known = {"github": providers.GITHUB, "shopify": providers.SHOPIFY, "slack": providers.SLACK}
    if source.preset in known:
        return known[source.preset]
    return providers.Hmac(
        header=source.header,
        algorithm=source.algorithm,
        encoding=source.encoding,
        prefix=source.prefix,
        separator=source.separator,
        timestamp_header=source.timestamp_header,
        tolerance=source.tolerance,
    )
