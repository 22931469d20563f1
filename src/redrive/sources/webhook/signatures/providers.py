"""
Stripe, GitHub, Slack, Shopify, and any other HMAC in a header.

Owns each provider's header, its form, and what it signs. All but the last name are special cases of one value,
`Hmac`, which a source may also describe itself. Knows no source and no JSON.
"""

from __future__ import annotations

import base64
import hmac
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import msgspec

from redrive.sources.webhook.signatures.reading import from_base64, from_hex, header, timestamp
from redrive.sources.webhook.signatures.verdict import (
    MOST_SIGNATURES,
    TOLERANCE,
    Claimed,
    Message,
    Refusal,
    Secret,
    SignatureVerdict,
    fits_hmac,
    judge,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Algorithm = Literal["sha256", "sha1", "sha512"]
Encoding = Literal["hex", "base64"]
Pairs = tuple[tuple[bytes, bytes], ...]


class Hmac(msgspec.Struct, frozen=True, kw_only=True):
    """
    One HMAC in one header.

    It signs the body, or, with *timestamp_header*, *before*, the timestamp, *separator* and the body.
    """

    header: str
    algorithm: Algorithm = "sha256"
    encoding: Encoding = "hex"
    prefix: str = ""
    timestamp_header: str | None = None
    before: str = ""
    separator: str = "."
    tolerance: float = TOLERANCE  # seconds

    def verify(self, message: Message, secrets: Sequence[Secret], now: float) -> SignatureVerdict:
        """Return whether one of *secrets* signed *message*."""
        return judge(self.read(message), secrets, now, fits_hmac(self.algorithm), tolerance=self.tolerance)

    def read(self, message: Message) -> Claimed | Refusal:
        """Return what the headers claim."""
        text = header(message.headers, _name(self.header))
        if isinstance(text, Refusal):
            return text
        prefix = self.prefix.encode()
        signature = self._decode(text[len(prefix) :]) if text.startswith(prefix) else None
        if signature is None:
            return Refusal.MALFORMED
        if self.timestamp_header is None:
            return Claimed(message.body, (signature,))
        written = header(message.headers, _name(self.timestamp_header))
        at = timestamp(written)
        if isinstance(written, Refusal) or isinstance(at, Refusal):
            return written if isinstance(written, Refusal) else Refusal.MALFORMED
        return Claimed(self._content(written, message.body), (signature,), at)

    def sign(self, key: bytes, at: int, body: bytes) -> Pairs:
        """Return the headers that sign *body*."""
        written = b"%d" % at
        content = body if self.timestamp_header is None else self._content(written, body)
        digest = hmac.digest(key, content, self.algorithm)
        text = digest.hex().encode() if self.encoding == "hex" else base64.b64encode(digest)
        pairs = ((_name(self.header), self.prefix.encode() + text),)
        return pairs if self.timestamp_header is None else (*pairs, (_name(self.timestamp_header), written))

    def _content(self, written: bytes, body: bytes) -> bytes:
        return b"%b%b%b%b" % (self.before.encode(), written, self.separator.encode(), body)

    def _decode(self, text: bytes) -> bytes | None:
        return from_hex(text) if self.encoding == "hex" else from_base64(text)


GITHUB = Hmac(header="X-Hub-Signature-256", prefix="sha256=")
SHOPIFY = Hmac(header="X-Shopify-Hmac-Sha256", encoding="base64")
SLACK = Hmac(
    header="X-Slack-Signature", prefix="v0=", timestamp_header="X-Slack-Request-Timestamp", before="v0:", separator=":"
)
_STRIPE_HEADER = b"stripe-signature"
_STRIPE_FITS = fits_hmac("sha256")


def verify_stripe(
    message: Message, secrets: Sequence[Secret], now: float, tolerance: float = TOLERANCE
) -> SignatureVerdict:
    """Return whether one of *secrets* signed *message* as Stripe does."""
    return judge(_read_stripe(message), secrets, now, _STRIPE_FITS, tolerance=tolerance)


def sign_stripe(key: bytes, at: int, body: bytes) -> Pairs:
    """Return the header that signs *body* as Stripe does."""
    digest = hmac.digest(key, b"%d.%b" % (at, body), "sha256")
    return ((_STRIPE_HEADER, b"t=%d,v1=%b" % (at, digest.hex().encode())),)


def _read_stripe(message: Message) -> Claimed | Refusal:
    """Read `t=1492774577,v1=…,v1=…`; schemes other than v1 are for other readers."""
    text = header(message.headers, _STRIPE_HEADER)
    if isinstance(text, Refusal):
        return text
    entries = [entry.partition(b"=") for entry in text.split(b",")]
    times = [value for name, _, value in entries if name == b"t"]
    given = [from_hex(value) for name, _, value in entries if name == b"v1"]
    at = timestamp(times[0]) if len(times) == 1 else Refusal.MALFORMED
    signatures = tuple(each for each in given if each is not None)
    if isinstance(at, Refusal) or not 1 <= len(given) <= MOST_SIGNATURES or len(signatures) != len(given):
        return Refusal.MALFORMED
    return Claimed(b"%b.%b" % (times[0], message.body), signatures, at)


@lru_cache(256)  # the same few for every request
def _name(header_name: str) -> bytes:
    return header_name.lower().encode("ascii")
