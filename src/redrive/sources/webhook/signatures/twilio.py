"""
Twilio: an HMAC-SHA1 of the address and the form.

Owns reading the form in order to check it, within bounds: this is the one place where a body is read before its
signature holds. A body that is no form is checked by its hash in the address. Knows no source.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from redrive.sources.webhook.signatures.reading import from_base64, header
from redrive.sources.webhook.signatures.verdict import (
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

FORM = b"application/x-www-form-urlencoded"
_HEADER = b"x-twilio-signature"
_MOST_FIELDS = 1_000
_BODY_HASH = "bodySHA256"
_FITS = fits_hmac("sha1")


def verify(message: Message, secrets: Sequence[Secret], now: float) -> SignatureVerdict:
    """Return whether one of *secrets* signed *message*, whose url is the one that Twilio was given."""
    return judge(_read(message), secrets, now, _FITS)


def sign(key: bytes, url: str, body: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Return the header that signs a form sent to *url*."""
    content = _content(url, fields_of(body) or [])
    return ((_HEADER, base64.b64encode(hmac.digest(key, content, "sha1"))),)


def fields_of(body: bytes) -> list[tuple[str, str]] | None:
    """Return the fields of a form in their order, or None if there are too many or they are no text."""
    try:
        text = body.decode("utf-8")
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:  # no UTF-8, before or after the escapes are read, or too many fields
        return None


def _read(message: Message) -> Claimed | Refusal:
    text = header(message.headers, _HEADER)
    if isinstance(text, Refusal):
        return text
    signature = from_base64(text)
    fields = _signed_fields(message)
    if signature is None or fields is None:
        return Refusal.MALFORMED
    return Claimed(_content(message.url, fields), (signature,))


def _signed_fields(message: Message) -> list[tuple[str, str]] | None:
    """Return the fields that are part of what is signed; None if the body cannot be checked."""
    media = header(message.headers, b"content-type")
    if isinstance(media, bytes) and media.partition(b";")[0].strip().lower() == FORM:
        return fields_of(message.body)
    hashes = [value for name, value in parse_qsl(message.url.partition("?")[2]) if name == _BODY_HASH]
    actual = hashlib.sha256(message.body).hexdigest()
    return [] if len(hashes) == 1 and hmac.compare_digest(hashes[0].encode(), actual.encode()) else None


def _content(url: str, fields: Sequence[tuple[str, str]]) -> bytes:
    # A field that occurs twice with one value counts once, as Twilio has it.
    return (url + "".join(name + value for name, value in sorted(set(fields)))).encode("utf-8", "surrogatepass")
