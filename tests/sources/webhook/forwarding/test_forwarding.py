"""Events sent on to an HTTP service: what it gets, and what its answers mean."""

from __future__ import annotations

import pytest
from tests.sources.webhook.asgi import post
from tests.sources.webhook.conftest import KEY
from tests.sources.webhook.forwarding.destination import answer, destination

from redrive import Redrive
from redrive.core.query import parse
from redrive.errors import SettingsError
from redrive.sources.webhook import Forward, Inbox, Source
from redrive.sources.webhook.signatures import standard
from redrive.sources.webhook.signatures.verdict import Message, Secret
from redrive.testing import drive

REFERENCE, SHORT = "env:HOOK_SECRET", "env:SHORT"


@pytest.fixture
async def there():
    async with destination() as made:
        yield made


def forwarding(there, **options):
    app = Redrive("memory://")
    forward = Forward(url=there.url, **options)
    return app, Inbox(app, [Source.github(insecure=True, forward=forward, key_field="key")], now=lambda: 1_760_000_000)


async def receive(inbox, body=b'{"a":1}', *headers):
    pairs = [(b"x-github-event", b"push"), (b"content-type", b"application/json"), *headers]
    assert (await post(inbox, "/github", body, pairs)).status == 202


async def test_a_service_gets_the_event_signed_and_named(there):
    app, inbox = forwarding(there, secret=REFERENCE)
    async with drive(app) as test:
        await receive(inbox, b'{"a":1}', (b"x-github-delivery", b"d-1"))
        await test.run_until_idle()
        (letter,) = await test.letters("status:delivered")
        await inbox.close()
    (got,) = there.got
    assert (got.head, got.body) == ("POST /hooks HTTP/1.1", b'{"a":1}')
    assert got.header("idempotency-key") == "github:d-1"
    assert (got.header("redrive-id"), got.header("redrive-kind")) == (letter.id, "github")
    assert (got.header("redrive-event-type"), got.header("content-type")) == ("push", "application/json")
    assert got.header("x-github-event") is None  # original headers go along on request only
    signed = Message([(key.lower().encode(), value.encode()) for key, value in got.headers], got.body)
    assert standard.verify(signed, [Secret(KEY)], 1_760_000_000).accepted


async def test_original_headers_go_along_on_request_and_inject_nothing(there):
    app, inbox = forwarding(there, headers=True, secret=REFERENCE)
    async with drive(app) as test:
        injected = (b"x-evil", b"a\r\nX-Injected: 1")
        others = [(b"authorization", b"Basic x"), (b"host", b"evil.example"), (b"transfer-encoding", b"chunked")]
        mine = [(b"webhook-id", b"theirs"), (b"redrive-id", b"theirs"), (b"x-mine", b"caf\xe9"), (b"bad name", b"x")]
        await receive(inbox, b"{}", injected, *others, *mine)
        await test.run_until_idle()
        await inbox.close()
    (got,) = there.got
    names = [name.lower() for name, _ in got.headers]
    assert (got.header("x-mine"), got.header("x-github-event")) == ("café", "push")
    assert not {"x-evil", "x-injected", "authorization", "transfer-encoding", "bad name"} & set(names)
    assert got.header("host") == f"127.0.0.1:{there.port}"
    assert names.count("webhook-id") == names.count("redrive-id") == names.count("host") == 1
    assert got.header("webhook-id") != "theirs"


async def test_a_failed_forward_is_retried_by_the_inboxs_policy_and_waits_as_asked(there):
    there.answers = [answer(500), answer(503, "Retry-After: 60"), answer(302, "Location: http://evil.example/")]
    app, inbox = forwarding(there)
    waits = []
    app.listen(lambda fact: waits.append(round(fact.delay)) if fact.name == "redrive.letter.retried" else None)
    async with drive(app) as test:
        await receive(inbox)
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 1
        await inbox.close()
    assert waits == [10, 60, 40]  # the second wait is the destination's own
    assert len(there.got) == 4  # a redirect is an answer that confirms nothing; it is not followed
    assert len({got.header("idempotency-key") for got in there.got}) == 1


@pytest.mark.parametrize(("status", "tries"), [(410, 1), (422, 1), (404, 5), (400, 5)])
async def test_410_and_listed_statuses_end_an_event_at_once(there, status, tries):
    there.answers = [answer(status)] * 5
    app, inbox = forwarding(there, terminal=[410, 422], breaker=False)
    async with drive(app) as test:
        await receive(inbox)
        await test.run_until_idle()
        (letter,) = await test.letters("status:failed")
        await inbox.close()
    assert (letter.attempts, len(there.got)) == (tries, tries)
    assert f"answered {status}" in letter.last_error


async def test_an_open_breaker_spends_no_attempts(there):
    there.answers = [answer(500)] * 12
    app, inbox = forwarding(there)
    async with drive(app) as test:
        for n in range(12):
            await receive(inbox, b'{"n": %d}' % n)
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 12
        tries = sorted(letter.attempts for letter in await test.letters("status:delivered"))
        opened = (await app.store.breakers())[f"forward:127.0.0.1:{there.port}"]
        await inbox.close()
    assert sum(tries) == len(there.got)
    assert opened.name.startswith("forward:127.0.0.1")


async def test_a_destination_that_is_switched_off_keeps_what_arrives_and_gets_it_in_order_per_key(there):
    app, inbox = forwarding(there)
    async with drive(app) as test:
        await app.open()
        await app.desk.pause("inbox.github", reason="maintenance")
        for n in range(6):
            await receive(inbox, b'{"key": "%d", "n": %d}' % (n % 2, n))
        await test.run_until_idle()
        assert (there.got, await app.store.count(parse("status:pending"))) == ([], 6)
        await app.desk.resume("inbox.github")
        await test.run_until_idle()
        await inbox.close()
    bodies = [got.body for got in there.got]
    assert len(bodies) == 6
    for key in (b'"0"', b'"1"'):
        ours = [body for body in bodies if key in body]
        assert ours == sorted(ours)


async def test_a_handler_wins_over_the_forward(there):
    app, inbox = forwarding(there)
    seen = []

    @app.handler("github.push")
    async def push(payload: bytes) -> None:
        seen.append(payload)

    async with drive(app) as test:
        await receive(inbox)
        await post(inbox, "/github", b"other", [(b"x-github-event", b"issues")])
        await test.run_until_idle()
        await inbox.close()
    assert (seen, [got.body for got in there.got]) == ([b'{"a":1}'], [b"other"])


async def test_a_destination_that_does_not_answer_in_time_is_a_failed_attempt(monkeypatch):
    import asyncio  # noqa: PLC0415

    monkeypatch.setenv("MAX_ATTEMPTS", "1")

    async def silent(reader, writer):
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://localhost:{server.sockets[0].getsockname()[1]}/?token=marker"
    app = Redrive("memory://")
    inbox = Inbox(app, [Source.github(insecure=True, forward={"url": url, "timeout": 0.1})])
    async with drive(app) as test:
        await receive(inbox)
        await test.run_until_idle()
        (letter,) = await test.letters("status:failed")
        await inbox.close()
    server.close()
    assert letter.last_error == "localhost did not answer within 0.1 s"


def test_a_weak_key_of_a_forward_refuses_to_start(monkeypatch):
    monkeypatch.setenv("SHORT", "short")
    forward = Forward(url="http://localhost/", secret=SHORT)
    with pytest.raises(SettingsError, match="16 or more"):
        Inbox(Redrive("memory://"), [Source.github(insecure=True, forward=forward)])


async def test_a_table_describes_a_forward_and_its_queue_is_ordered_and_has_its_rate():
    table = {
        "url": "https://service.example/hooks",
        "rate": 20,
        "allow_private": ["10.0.0.0/8"],
        "terminal": [410, 422],
    }
    sources = {"github": {"insecure": True, "forward": table}}
    app = Redrive("memory://", inbox={"sources": sources, "queue_maxsize": 7})
    Inbox(app)
    async with app:
        (spec,) = [state.spec for state in await app.store.queues() if state.spec.name == "inbox.github"]
        assert (spec.ordered, spec.rate, spec.max_size) == (True, 20, 7)
        assert app.handlers["github"].breaker == "forward:service.example:443"
        assert (app.handlers["github"].policy.max_attempts, app.handlers["github"].policy.jitter) == (5, "none")
