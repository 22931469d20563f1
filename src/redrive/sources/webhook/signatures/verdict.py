"""
Whether a signature holds.

Owns the verdict, its reasons, the secrets that a source accepts and the one comparison: constant time, on bytes,
over every live secret and every signature. Knows no provider: each reads its own headers into a `Claimed`.
"""

from __future__ import annotations

import hmac
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LEAST_BYTES = 16  # of a secret: a shorter one can be guessed
TOLERANCE = 300.0  # seconds that a signed timestamp may differ from our clock, both ways
MOST_SIGNATURES = 16  # in one request: a sender that rotates has two or three


class Refusal(StrEnum):
    """Why a signature does not hold. Metrics and logs show these words; the sender sees none of them."""

    MISSING = "missing"  # a header that the scheme needs is not there
    MALFORMED = "malformed"  # a header cannot be read, or occurs twice
    EXPIRED = "expired"  # signed too long ago
    FUTURE = "future"  # signed too far in the future
    NO_SECRET = "no_secret"  # noqa: S105 - every secret of the source has reached its end date
    MISMATCH = "mismatch"  # no live secret gives this signature


class SignatureVerdict(msgspec.Struct, frozen=True):
    """Either accepted, with the place of the secret that fits, or refused with a reason."""

    secret: int | None = None
    refusal: Refusal | None = None

    @property
    def accepted(self) -> bool:
        """Whether the signature holds."""
        return self.refusal is None


class Secret(msgspec.Struct, frozen=True):
    """One key of a source. It shows itself nowhere."""

    key: bytes
    ends: float | None = None  # seconds since the epoch; it counts until then

    def __repr__(self) -> str:
        """Return nothing of the key."""
        return "Secret(***)"

    def lives(self, now: float) -> bool:
        """Whether it still counts."""
        return self.ends is None or now < self.ends


class Message(NamedTuple):
    """What arrived, as it arrived: header names are lower case, as ASGI gives them."""

    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    url: str = ""  # the address that the sender used, for the schemes that sign it


class Claimed(msgspec.Struct, frozen=True):
    """What the sender says it signed, when, and the signatures it gives."""

    content: bytes
    signatures: tuple[bytes, ...]
    at: int | None = None  # seconds since the epoch


def judge(
    claimed: Claimed | Refusal,
    secrets: Sequence[Secret],
    now: float,
    fits: Callable[[bytes, bytes, bytes], bool],
    *,
    tolerance: float = TOLERANCE,
) -> SignatureVerdict:
    """Return the verdict; *fits* takes a key, the content and a signature, and never raises."""
    if isinstance(claimed, Refusal):
        return SignatureVerdict(refusal=claimed)
    if claimed.at is not None and claimed.at < now - tolerance:
        return SignatureVerdict(refusal=Refusal.EXPIRED)
    if claimed.at is not None and claimed.at > now + tolerance:
        return SignatureVerdict(refusal=Refusal.FUTURE)
    fitting, refusal = None, Refusal.NO_SECRET
    for place, secret in enumerate(secrets):
        if secret.lives(now):
            refusal = Refusal.MISMATCH
            # Every pair is compared, also after one fits: the time taken says nothing about which.
            for each in claimed.signatures:
                if fits(secret.key, claimed.content, each) and fitting is None:
                    fitting = place
    return SignatureVerdict(refusal=refusal) if fitting is None else SignatureVerdict(secret=fitting)


@cache
def fits_hmac(algorithm: str) -> Callable[[bytes, bytes, bytes], bool]:
    """Return what compares the HMAC of some content by *algorithm* with a signature."""

    def fits(key: bytes, content: bytes, signature: bytes) -> bool:
        return hmac.compare_digest(hmac.digest(key, content, algorithm), signature)

    return fits
