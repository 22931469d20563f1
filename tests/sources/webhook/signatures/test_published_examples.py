"""Second opinions: what the providers publish, and the reference library of Standard Webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from redrive.sources.webhook.signatures import providers, standard, twilio
from redrive.sources.webhook.signatures.verdict import Message, Refusal, Secret

STANDARD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_githubs_example():
    signature = b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    message = Message([(b"x-hub-signature-256", signature)], b"Hello, World!")
    assert providers.GITHUB.verify(message, [Secret(b"It's a Secret to Everybody")], 0).accepted


def test_slacks_example():
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554"
        b"%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    signature = b"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    headers = [(b"x-slack-signature", signature), (b"x-slack-request-timestamp", b"1531420618")]
    secrets = [Secret(b"8f742231b10e8888abcd99yyyzzz85a5")]
    assert providers.SLACK.verify(Message(headers, body), secrets, 1_531_420_618).accepted
    assert providers.SLACK.verify(Message(headers, body), secrets, 1_531_420_918.5).refusal is Refusal.EXPIRED
    assert providers.SLACK.verify(Message(headers, body), secrets, 1_531_420_317.5).refusal is Refusal.FUTURE


def test_the_example_of_standard_webhooks():
    headers = [
        (b"webhook-id", b"msg_p5jXN8AQM9LWM0D4loKWxJek"),
        (b"webhook-timestamp", b"1614265330"),
        (b"webhook-signature", b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ]
    message = Message(headers, b'{"test": 2432232314}')
    assert standard.verify(message, [Secret(standard.key_of(STANDARD))], 1_614_265_330).accepted


@pytest.mark.parametrize("prefix", ["webhook", "svix"])
@given(body=st.text(max_size=200), at=st.integers(0, 2**33))
def test_what_the_reference_library_signs_we_accept(prefix, body, at):
    signature = Webhook(STANDARD).sign("msg_1", datetime.fromtimestamp(at, UTC), body)
    headers = [
        (f"{prefix}-id".encode(), b"msg_1"),
        (f"{prefix}-timestamp".encode(), str(at).encode()),
        (f"{prefix}-signature".encode(), signature.encode()),
    ]
    key = standard.key_of(STANDARD)
    assert key is not None
    assert standard.verify(Message(headers, body.encode()), [Secret(key)], at).accepted
    if prefix == "webhook":
        assert list(standard.sign(key, "msg_1", at, body.encode())) == headers


def test_an_ed25519_signature_of_standard_webhooks():
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    signature = base64.b64encode(private.sign(b"msg_1.1614265330.{}"))
    headers = [
        (b"webhook-id", b"msg_1"),
        (b"webhook-timestamp", b"1614265330"),
        (b"webhook-signature", b"v1a," + signature),
    ]
    key = standard.key_of(standard.PUBLIC + base64.b64encode(public).decode())
    assert key is not None
    assert standard.verify(Message(headers, b"{}"), [Secret(key)], 1_614_265_330).accepted
    assert standard.verify(Message(headers, b"[]"), [Secret(key)], 1_614_265_330).refusal is Refusal.MISMATCH
    renamed = [*headers[:2], (b"webhook-signature", b"v1," + signature)]  # the version says what the bytes are
    assert standard.verify(Message(renamed, b"{}"), [Secret(key)], 1_614_265_330).refusal is Refusal.MISMATCH


def test_a_public_key_is_never_taken_for_a_shared_one():
    public = base64.b64encode(bytes(range(32))).decode()
    key = standard.key_of(standard.PUBLIC + public)
    assert key is not None
    for guessed in (key, bytes(range(32))):  # whoever knows the public key signs a v1 with it
        message = Message(standard.sign(guessed, "msg_1", 1_614_265_330, b"{}"), b"{}")
        assert standard.verify(message, [Secret(key)], 1_614_265_330).refusal is Refusal.MISMATCH


def test_a_key_that_says_what_it_is_and_is_not_that_is_none():
    assert standard.key_of("whsec_not base64") is None
    assert standard.key_of("whpk_" + base64.b64encode(b"short").decode()) is None
    assert standard.key_of("plain text of some length") == b"plain text of some length"


def test_a_dot_in_the_id_is_refused_because_it_would_move_what_is_signed():
    pairs = dict(standard.sign(b"k" * 16, "msg_1.5", 1_614_265_330, b"{}"))
    assert (
        standard.verify(Message(list(pairs.items()), b"{}"), [Secret(b"k" * 16)], 1_614_265_330).refusal == "malformed"
    )


def test_stripes_scheme_as_its_pages_describe_it():
    secret, body = b"whsec_test_secret_of_a_shop", b'{"id": "evt_1"}'
    digest = hmac.new(secret, b"1492774577." + body, hashlib.sha256).hexdigest()
    header = (
        f"t=1492774577,v1={'0' * 64},v1={digest},v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39"
    )
    message = Message([(b"stripe-signature", header.encode())], body)
    assert providers.verify_stripe(message, [Secret(secret)], 1_492_774_577).accepted


def test_shopifys_scheme_as_its_pages_describe_it():
    digest = base64.b64encode(hmac.new(b"hush, this is long enough", b'{"a":1}', hashlib.sha256).digest())
    message = Message([(b"x-shopify-hmac-sha256", digest)], b'{"a":1}')
    assert providers.SHOPIFY.verify(message, [Secret(b"hush, this is long enough")], 0).accepted


def test_the_example_of_twilios_python_library():
    place = {"City": "SOUTH LAKE TAHOE", "Country": "US", "State": "CA", "Zip": "89449"}
    oakland = {"City": "OAKLAND", "Country": "US", "State": "CA", "Zip": "94612"}
    fields = {
        "AccountSid": "AC9a9f9392lad99kla0sklakjs90j092j3",
        "ApiVersion": "2010-04-01",
        "CallSid": "CAd800bb12c0426a7ea4230e492fef2a4f",
        "CallStatus": "ringing",
        "Called": "+15306384866",
        "Caller": "+15306666666",
        "CallerName": "CA Wireless Call",
        "Direction": "inbound",
        "From": "+15306666666",
        "To": "+15306384866",
        **{f"{who}{name}": value for who in ("Called", "To") for name, value in oakland.items()},
        **{f"{who}{name}": value for who in ("Caller", "From") for name, value in place.items()},
    }
    headers = [(b"content-type", twilio.FORM), (b"x-twilio-signature", b"fF+xx6dTinOaCdZ0aIeNkHr/ZAA=")]
    message = Message(headers, urlencode(fields).encode(), "http://www.postbin.org/1ed898x")
    assert twilio.verify(message, [Secret(b"1c892n40nd03kdnc0112slzkl3091j20")], 0).accepted


def test_a_body_of_twilio_that_is_no_form_is_checked_by_its_hash_in_the_address():
    body = b'{"a": 1}'
    url = f"https://inbox.example/hooks/twilio?bodySHA256={hashlib.sha256(body).hexdigest()}"
    pairs = ((b"content-type", b"application/json"), *twilio.sign(b"k" * 16, url, b""))
    assert twilio.verify(Message(pairs, body, url), [Secret(b"k" * 16)], 0).accepted
    assert twilio.verify(Message(pairs, b"{}", url), [Secret(b"k" * 16)], 0).refusal is Refusal.MALFORMED


def test_secrets_overlap_while_they_rotate_and_end_on_their_date():
    message = Message(providers.GITHUB.sign(b"old" * 8, 0, b"{}"), b"{}")
    secrets = [Secret(b"new" * 8), Secret(b"old" * 8, ends=1_000.0)]
    assert providers.GITHUB.verify(message, secrets, 999.0).secret == 1
    assert providers.GITHUB.verify(message, secrets, 1_000.0).refusal is Refusal.MISMATCH
    assert providers.GITHUB.verify(message, secrets[1:], 1_000.0).refusal is Refusal.NO_SECRET


def test_a_secret_shows_itself_nowhere():
    assert "old" not in repr(Secret(b"old" * 8)) + str([Secret(b"old" * 8)])
