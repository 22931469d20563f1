"""What each request is answered, and whether a letter is kept for it."""

from __future__ import annotations

import gzip
import json

import pytest
from tests.sources.webhook.asgi import get, post, request
from tests.sources.webhook.conftest import KEY
from tests.sources.webhook.signatures.schemes import NOW

from redrive import Redrive
from redrive.core.query import parse
from redrive.errors import SettingsError
from redrive.sources.webhook import Inbox, Source
from redrive.sources.webhook.samples import sample
from redrive.sources.webhook.signatures import providers

SECRETS = ["env:HOOK_SECRET"]
URL = "https://inbox.example/hooks/twilio"


def all_sources(**options):
    return [
        Source.standard(secrets=SECRETS, **options),
        Source.stripe(secrets=SECRETS, **options),
        Source.github(secrets=SECRETS, **options),
        Source.slack(secrets=SECRETS, **options),
        Source.shopify(secrets=SECRETS, **options),
        Source.twilio(secrets=SECRETS, public_url=URL, **options),
        Source.hmac(secrets=SECRETS, header="X-Sig", id_header="X-Id", type_field="kind", **options),
    ]


KINDS = {
    "standard": "standard.order.paid",
    "stripe": "stripe.invoice.paid",
    "github": "github.ping",
    "slack": "slack.app_mention",
    "shopify": "shopify.orders.create",
    "twilio": "twilio.message",
    "hmac": "hmac.order.paid",
}


def sent(name):
    source = next(each for each in all_sources() if each.name == name)
    return sample(source, KEY, NOW, "evt_1")


async def letters(app, query="origin:webhook:*"):
    await app.open()
    return (await app.store.find(parse(query))).letters


@pytest.mark.parametrize("name", KINDS)
async def test_a_signed_event_is_kept_and_answered_with_its_id(app, name):
    body, headers = sent(name)
    app.add_handler(KINDS[name], handle)
    inbox = Inbox(app, all_sources(), now=lambda: NOW)
    query = b"" if name == "twilio" else b"a=1"  # Twilio signs the whole address
    answer = await post(inbox, f"/{name}", body, [(b"X-Other", b"\xff"), *headers], query=query)
    assert answer.status == 202
    (letter,) = await letters(app)
    assert answer.headers[b"redrive-id"].decode() == letter.id
    assert name == "twilio" or answer.json == {"id": letter.id, "status": "pending"}
    assert (letter.kind, letter.idempotency_key) == (KINDS[name], f"{name}:evt_1")
    assert (letter.payload, letter.queue, letter.origin) == (body, "inbox", f"webhook:{name}")
    assert letter.headers == (("x-other", b"\xff"), *((key.decode(), value) for key, value in headers))
    assert letter.metadata.get("query") == (query.decode() or None)


@pytest.mark.parametrize("name", KINDS)
async def test_a_bad_signature_is_401_is_counted_and_keeps_nothing(app, name):
    body, headers = sent(name)
    inbox = Inbox(app, all_sources(), now=lambda: NOW)
    signature = [(key, value[:-2] + b"0=" if b"sig" in key or b"hmac" in key else value) for key, value in headers]
    for each in ((body + b" ", headers), (body, signature), (body, [])):
        assert (await post(inbox, f"/{name}", *each)).status == 401
    assert await letters(app) == []
    assert inbox.counts.refusals[name, "missing"] == 1
    assert inbox.counts.results[name, "refused"] == 3


async def handle(payload: bytes) -> None:
    """Take anything."""


async def test_an_unknown_source_is_404_and_another_method_405(app):
    inbox = Inbox(app, [Source.github(insecure=True)])
    for path in ("/", "", "/gitlab", "/github/", "//github", "/github/x", "/../github", "/GITHUB", "/github%00"):
        assert (await post(inbox, path)).status == 404, path
    for method in ("GET", "PUT", "HEAD", "DELETE", "OPTIONS"):
        answer = await request(inbox, method, "/github")
        assert (answer.status, answer.headers[b"allow"]) == (405, b"POST")


async def test_a_type_that_is_not_listed_is_200_ignored_and_not_kept(app):
    inbox = Inbox(app, [Source.github(insecure=True, events=["pull_*"])])
    answer = await post(inbox, "/github", b"{}", [(b"x-github-event", b"push")])
    assert (answer.status, answer.json) == (200, {"status": "ignored"})
    assert (await post(inbox, "/github", b"{}")).json == {"status": "ignored"}
    assert await letters(app) == []
    assert inbox.counts.results["github", "ignored"] == 2
    assert (await post(inbox, "/github", b"{}", [(b"x-github-event", b"pull_request")])).status == 202


async def test_the_kinds_own_handler_wins_over_the_sources_handler(app):
    app.add_handler("github", handle)
    app.add_handler("github.push", handle)
    inbox = Inbox(app, [Source.github(insecure=True)])
    for event in (b"push", b"issues"):
        await post(inbox, "/github", event, [(b"x-github-event", event)])
    assert {letter.kind for letter in await letters(app)} == {"github.push", "github"}


async def test_an_event_without_a_handler_is_kept_as_failed_and_can_be_replayed_after_a_deploy(tmp_path):
    async with Redrive(f"sqlite:///{tmp_path}/a.db") as app:
        inbox = Inbox(app, [Source.github(insecure=True)])
        answer = await post(inbox, "/github", b"{}", [(b"x-github-event", b"push")])
        assert (answer.status, answer.json["status"]) == (202, "failed")
        (letter,) = await letters(app, "status:failed")
        assert (letter.kind, letter.error_type, letter.last_error[:10]) == ("github.push", "NoHandler", "no handler")
        assert inbox.counts.results["github", "unhandled"] == 1
    seen = []
    later = Redrive(f"sqlite:///{tmp_path}/a.db")  # the next deploy has a handler for all that GitHub sends
    Inbox(later, [Source.github(insecure=True)])

    @later.handler("github")
    async def take(payload: bytes) -> None:
        seen.append(payload)

    async with later:
        await later.desk.replay(letter.id, reason="deployed")
        await later.run(until_idle=True, signals=False)
    assert seen == [b"{}"]


async def test_with_workers_elsewhere_an_event_without_a_handler_waits(app):
    inbox = Inbox(app, [Source.github(insecure=True)], workers="elsewhere")
    assert (await post(inbox, "/github", b"{}", [(b"x-github-event", b"push")])).json["status"] == "pending"


async def test_slacks_challenge_is_answered_after_the_signature_holds_and_keeps_nothing(app):
    inbox = Inbox(app, [Source.slack(secrets=SECRETS)], now=lambda: NOW)
    body = b'{"type": "url_verification", "challenge": "3eZbrw1aB"}'
    assert (await post(inbox, "/slack", body)).status == 401
    answer = await post(inbox, "/slack", body, providers.SLACK.sign(KEY, NOW, body))
    assert (answer.status, answer.body, answer.headers[b"content-type"][:10]) == (200, b"3eZbrw1aB", b"text/plain")
    assert await letters(app) == []


async def test_any_bytes_and_any_content_type_are_kept_as_they_arrived(app):
    app.add_handler("github", handle)
    inbox = Inbox(app, [Source.github(insecure=True)])
    for body in (b"", b"\x00\xff\xfe", b'{"id": "\\u0000"}', b"{" * 5_000, "\ud800".encode("utf-8", "surrogatepass")):
        assert (await post(inbox, "/github", body, [(b"content-type", b"x/y; \xe9")])).status == 202
        (letter,) = (await app.store.find(parse("origin:webhook:*"), limit=1)).letters
        assert (letter.payload, letter.content_type) == (body, "x/y; é")


@pytest.mark.parametrize(
    ("name", "body", "headers"),
    [
        ("webhooks", b"no JSON at all", []),  # read, it would be 400
        ("stripe", b"no gzip", [(b"content-encoding", b"gzip")]),  # unpacked, 400
        ("stripe", gzip.compress(bytes(2_000_000), mtime=0), [(b"content-encoding", b"gzip")]),  # 413
        ("stripe", b"{}", [(b"content-encoding", b"br")]),  # 415
        ("slack", b'{"type": "url_verification", "challenge": "x"}', []),  # 200
        ("stripe", b'{"type": "not.listed"}', []),  # 200
    ],
)
async def test_nothing_is_parsed_before_the_signature_holds(app, name, body, headers):
    sources = [*all_sources(events=["listed"]), Source.plain(secrets=SECRETS)]
    inbox = Inbox(app, sources, now=lambda: NOW)
    assert (await post(inbox, f"/{name}", body, headers)).status == 401


async def test_a_store_that_is_away_is_503_and_asks_to_come_again(app):
    inbox = Inbox(app, [Source.github(insecure=True)])
    await app.open()
    await app.store.close()
    answer = await post(inbox, "/github", b"{}", [(b"x-github-delivery", b"1")])
    assert (answer.status, answer.headers[b"retry-after"]) == (503, b"5")
    assert inbox.counts.results["github", "unavailable"] == 1


async def test_twilio_gets_the_form_that_it_reads(app):
    inbox = Inbox(app, all_sources(), workers="elsewhere", now=lambda: NOW)
    for status in (202, 200):
        answer = await post(inbox, "/twilio", *sent("twilio"))
        assert (answer.status, answer.body, answer.headers[b"content-type"]) == (status, b"<Response/>", b"text/xml")
        assert len(answer.headers[b"redrive-id"]) == 36


async def test_the_documents_own_form(app):
    app.add_handler("webhooks.order.paid", handle)
    inbox = Inbox(app, [Source.plain(insecure=True)])
    event = {"idempotency_key": "k-1", "event_type": "order.paid", "payload": {"n": 1}}
    answer = await post(inbox, "/webhooks", json.dumps(event).encode())
    assert answer.status == 202
    assert (answer.json["idempotency_key"], answer.json["status"]) == ("k-1", "pending")
    assert answer.json["created_at"].endswith("Z")
    again = await post(inbox, "/webhooks", json.dumps(event).encode())
    assert set(answer.json) == set(again.json) == {"id", "idempotency_key", "status", "created_at"}
    assert (again.status, again.json["id"]) == (200, answer.json["id"])
    (letter,) = await letters(app)
    assert (letter.payload, letter.kind) == (b'{"n": 1}', "webhooks.order.paid")
    for path, query in ((f"/webhooks/{letter.id}", b""), ("/webhooks", b"idempotency_key=k-1")):
        found = await get(inbox.admin, path, query)
        assert found.status == 200
        assert set(found.json) == {"id", "idempotency_key", "status", "attempts", "created_at", "updated_at"}
    for path, query in (("/webhooks/unknown", b""), ("/webhooks", b"idempotency_key=k-2"), ("/other", b"")):
        assert (await get(inbox.admin, path, query)).status == 404


async def test_an_event_is_shown_by_its_own_source_alone(app):
    inbox = Inbox(app, [Source.plain(insecure=True), Source.github(insecure=True)], workers="elsewhere")
    event = (await post(inbox, "/github", b"{}")).json["id"]
    other = (await app.enqueue("mail", {"to": "ana"})).id  # a letter of the application's own
    assert (await get(inbox.admin, f"/hooks/github/{event}")).status == 200
    for path in (f"/webhooks/{event}", f"/github/{other}", f"/webhooks/{other}", f"/github/{event}/x", "/hooks"):
        assert (await get(inbox.admin, path)).status == 404, path


async def test_the_documents_own_form_may_be_signed(app):
    source = Source.plain(secrets=SECRETS)
    inbox = Inbox(app, [source], workers="elsewhere", now=lambda: NOW)
    body, headers = sample(source, KEY, NOW, "k-1")
    assert (await post(inbox, "/webhooks", body, headers)).json["idempotency_key"] == "k-1"
    assert (await post(inbox, "/webhooks", body)).status == 401


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"idempotency_key": "k", "event_type": "t"}',
        b'{"idempotency_key": "", "event_type": "t", "payload": 1}',
        b'{"idempotency_key": ["k"], "event_type": "t", "payload": 1}',
    ],
)
async def test_the_documents_own_form_says_what_is_wrong_with_it(app, body):
    inbox = Inbox(app, [Source.plain(insecure=True)])
    answer = await post(inbox, "/webhooks", body)
    assert answer.status == 400
    assert await letters(app) == []


async def test_a_compressed_body_is_checked_as_it_arrived_and_kept_unpacked(app):
    app.add_handler("github", handle)
    inbox = Inbox(app, [Source.github(secrets=SECRETS, max_body=1_000)], now=lambda: NOW)
    packed = gzip.compress(b'{"a": 1}', mtime=0)
    headers = [(b"content-encoding", b"gzip"), *providers.GITHUB.sign(KEY, NOW, packed)]
    assert (await post(inbox, "/github", packed, headers)).status == 202
    assert [letter.payload for letter in await letters(app)] == [b'{"a": 1}']


async def test_an_inbox_that_cannot_work_says_every_problem_when_it_is_made(app, monkeypatch):
    monkeypatch.setenv("SHORT", "x")
    with pytest.raises(SettingsError) as refused:
        Inbox(app, [Source.github(secrets=["env:SHORT"]), Source.stripe(secrets=["env:ABSENT"])])
    assert len(refused.value.problems) == 2


async def test_sources_come_from_the_settings_if_none_are_given(tmp_path, monkeypatch):
    (tmp_path / "redrive.toml").write_text(
        '[inbox.sources.stripe]\nsecrets = ["env:HOOK_SECRET"]\n'
        '[inbox.sources.shop]\npreset = "plain"\ninsecure = true\n'
    )
    monkeypatch.setenv("REDRIVE_CONFIG", str(tmp_path / "redrive.toml"))
    inbox = Inbox(Redrive("memory://"))
    assert {name: source.preset for name, source in inbox.sources.items()} == {"stripe": "stripe", "shop": "plain"}
