"""
Standard Webhooks: `v1` (HMAC-SHA256) and `v1a` (ed25519).

Owns the three headers, the form of its keys (`whsec_…`, `whpk_…`, `whsk_…`) and what is signed. Forwards sign with it,
too. Knows no source.
"""

from __future__ import annotations

import base64
import hmac
import re
from typing import TYPE_CHECKING

from redrive.sources.webhook.signatures.reading import from_base64, header, timestamp
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

PREFIXES = (b"webhook", b"svix")  # the second is the older name of the same headers
PUBLIC, PRIVATE, SHARED = "whpk_", "whsk_", "whsec_"
_ID = re.compile(rb"[!-\-/-~]{1,256}")  # visible ASCII without the dot, which separates what is signed
_ED25519_BYTES = 32
_ASYMMETRIC = b"\0ed25519\0"  # marks a public key among the keys of a source; no shared key begins so
_HMAC_FITS = fits_hmac("sha256")
_V1, _V1A = b"1:", b"a:"


def key_of(text: str) -> bytes | None:
    """Return the key that *text* stands for, or None if it says what it is and is not that."""
    for prefix in (SHARED, PUBLIC):
        if text.startswith(prefix):
            key = from_base64(text.removeprefix(prefix).encode("utf-8", "replace"))
            if key is None or prefix == SHARED:
                return key
            return _ASYMMETRIC + key if len(key) == _ED25519_BYTES else None
    return text.encode("utf-8")


def verify(message: Message, secrets: Sequence[Secret], now: float, tolerance: float = TOLERANCE) -> SignatureVerdict:
    """Return whether one of *secrets* signed *message*."""
    return judge(read(message), secrets, now, _fits, tolerance=tolerance)


def read(message: Message) -> Claimed | Refusal:
    """Return what the headers claim."""
    prefix = next((each for each in PREFIXES if _has(message, each)), PREFIXES[0])
    message_id = header(message.headers, prefix + b"-id")
    written = header(message.headers, prefix + b"-timestamp")
    listed = header(message.headers, prefix + b"-signature")
    at = timestamp(written)
    for found in (message_id, written, at, listed):
        if isinstance(found, Refusal):
            return found
    signatures = _signatures(listed)  # type: ignore[arg-type]  # refusals have left
    if signatures is None or not _ID.fullmatch(message_id):  # type: ignore[arg-type]
        return Refusal.MALFORMED
    return Claimed(b".".join((message_id, written, message.body)), signatures, at)  # type: ignore[arg-type]


def sign(key: bytes, message_id: str, at: int, body: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers that sign *body* by a shared key."""
    content = b"%b.%d.%b" % (message_id.encode("ascii"), at, body)
    signature = b"v1," + base64.b64encode(hmac.digest(key, content, "sha256"))
    return (
        (b"webhook-id", message_id.encode("ascii")),
        (b"webhook-timestamp", b"%d" % at),
        (b"webhook-signature", signature),
    )


def _has(message: Message, prefix: bytes) -> bool:
    return any(name.startswith(prefix + b"-") for name, _ in message.headers)


def _signatures(listed: bytes) -> tuple[bytes, ...] | None:
    """Return the signatures, each marked with its version; those of other versions are left out."""
    found: list[bytes] = []
    for entry in listed.split(b" "):
        version, comma, text = entry.partition(b",")
        decoded = from_base64(text)
        if not comma or decoded is None or len(found) == MOST_SIGNATURES:
            return None
        if version in (b"v1", b"v1a"):
            found.append((_V1 if version == b"v1" else _V1A) + decoded)
    return tuple(found)


def _fits(key: bytes, content: bytes, signature: bytes) -> bool:
    version, given = signature[:2], signature[2:]
    if key.startswith(_ASYMMETRIC):
        return version == _V1A and _fits_ed25519(key.removeprefix(_ASYMMETRIC), content, given)
    return version == _V1 and _HMAC_FITS(key, content, given)


def _fits_ed25519(key: bytes, content: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - only `v1a` needs the extra
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True
