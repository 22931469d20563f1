"""Every scheme under one roof, for tests that hold for all of them: how it signs, and how it is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redrive.sources.webhook.signatures import providers, standard, twilio
from redrive.sources.webhook.signatures.verdict import Message, Secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.sources.webhook.signatures.verdict import SignatureVerdict

NOW = 1_760_000_000
URL = "https://inbox.example/hooks/twilio"
GENERIC = providers.Hmac(header="X-Sig", algorithm="sha512", encoding="base64", timestamp_header="X-Time", prefix="v=")


class Scheme(NamedTuple):
    sign: Callable[[bytes, bytes], tuple[tuple[bytes, bytes], ...]]
    verify: Callable[[Message, list[Secret], float], SignatureVerdict]
    extra: tuple[tuple[bytes, bytes], ...] = ()

    def message(self, key: bytes, body: bytes) -> Message:
        return Message((*self.extra, *self.sign(key, body)), body, URL)


SCHEMES = {
    "standard": Scheme(lambda key, body: standard.sign(key, "msg_1", NOW, body), standard.verify),
    "stripe": Scheme(lambda key, body: providers.sign_stripe(key, NOW, body), providers.verify_stripe),
    "github": Scheme(lambda key, body: providers.GITHUB.sign(key, NOW, body), providers.GITHUB.verify),
    "slack": Scheme(lambda key, body: providers.SLACK.sign(key, NOW, body), providers.SLACK.verify),
    "shopify": Scheme(lambda key, body: providers.SHOPIFY.sign(key, NOW, body), providers.SHOPIFY.verify),
    "generic": Scheme(lambda key, body: GENERIC.sign(key, NOW, body), GENERIC.verify),
    "twilio": Scheme(lambda key, body: twilio.sign(key, URL, body), twilio.verify, ((b"content-type", twilio.FORM),)),
}
