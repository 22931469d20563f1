"""What no sender may be able to do: raise an error in us, or change a bit and get through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.webhook.signatures.schemes import NOW, SCHEMES, URL

from redrive.sources.webhook.signatures.verdict import Message, Refusal, Secret

KEY = b"0123456789abcdef"
BODY = b"id=evt_1&type=paid&amount=4+2"
HEADERS = sorted({name for scheme in SCHEMES.values() for name, _ in scheme.message(KEY, BODY).headers})
HEADERS += [b"content-type", b"svix-id", b"svix-timestamp", b"svix-signature"]
shapes = st.one_of(
    st.binary(max_size=80),
    st.from_regex(rb"(v1a?|v0|t|sha256)[=, ][-+0-9a-zA-Z/=, .]{0,90}", fullmatch=True),
    st.sampled_from([b"1760000000", b"1.7e9", b" 1760000000", b"-1", b"9" * 400, b"", b"t=1,t=2,v1=aa", b"v1," * 40]),
)


@pytest.mark.parametrize("name", SCHEMES)
@given(headers=st.lists(st.tuples(st.sampled_from(HEADERS), shapes), max_size=8), body=st.binary(max_size=200))
def test_whatever_arrives_is_a_verdict_and_never_an_exception(name, headers, body):
    verdict = SCHEMES[name].verify(Message(headers, body, URL), [Secret(KEY)], NOW)
    assert verdict.refusal in set(Refusal)


def flipped(data: bytes) -> list[bytes]:
    return [bytes([*data[:at], data[at] ^ (1 << bit), *data[at + 1 :]]) for at in range(len(data)) for bit in range(8)]


@pytest.mark.parametrize("name", SCHEMES)
def test_a_flipped_bit_of_the_body_is_refused(name):
    message = SCHEMES[name].message(KEY, BODY)
    for body in flipped(BODY):
        assert not SCHEMES[name].verify(message._replace(body=body), [Secret(KEY)], NOW).accepted, body


@pytest.mark.parametrize("name", SCHEMES)
def test_a_flipped_bit_of_any_signature_header_is_refused(name):
    message = SCHEMES[name].message(KEY, BODY)
    pairs = list(message.headers)
    for at, (header, value) in enumerate(pairs):
        if header == b"content-type":
            continue
        for changed in flipped(value):
            headers = [*pairs[:at], (header, changed), *pairs[at + 1 :]]
            assert not SCHEMES[name].verify(message._replace(headers=headers), [Secret(KEY)], NOW).accepted, changed


@pytest.mark.parametrize("name", SCHEMES)
def test_a_flipped_bit_of_the_secret_is_refused(name):
    message = SCHEMES[name].message(KEY, BODY)
    for key in flipped(KEY):
        assert SCHEMES[name].verify(message, [Secret(key)], NOW).refusal is Refusal.MISMATCH


@pytest.mark.parametrize("name", SCHEMES)
@given(body=st.binary(max_size=300))
def test_what_was_signed_is_accepted_whatever_the_bytes(name, body):
    if name == "twilio":  # it signs forms
        body = b"Body=" + body.hex().encode()
    assert SCHEMES[name].verify(SCHEMES[name].message(KEY, body), [Secret(KEY)], NOW).accepted


@pytest.mark.parametrize("name", SCHEMES)
def test_a_header_that_is_missing_or_comes_twice_is_refused(name):
    message = SCHEMES[name].message(KEY, BODY)
    for at, pair in enumerate(message.headers):
        if pair[0] == b"content-type":
            continue
        rest = [each for place, each in enumerate(message.headers) if place != at]
        assert SCHEMES[name].verify(message._replace(headers=rest), [Secret(KEY)], NOW).refusal is Refusal.MISSING
        twice = [*message.headers, pair]
        assert SCHEMES[name].verify(message._replace(headers=twice), [Secret(KEY)], NOW).refusal is Refusal.MALFORMED
