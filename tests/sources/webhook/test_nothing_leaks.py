"""No payload, header value or secret is in a log, a metric, an answer or an error."""

from __future__ import annotations

import pytest
from tests.sources.webhook.asgi import get, post
from tests.sources.webhook.conftest import KEY

from redrive import Redrive
from redrive.sources.webhook import Forward, Inbox, Source
from redrive.sources.webhook.signatures import providers

MARKER = "marker-8f3a-never-shown"
NOW = 1_760_000_000


@pytest.mark.parametrize("form", ["logging", "structlog"])
async def test_a_marker_in_payload_headers_query_and_secret_is_found_nowhere(form, monkeypatch, caplog, capsys):
    if form == "structlog":
        from redrive.signals.log import configure  # noqa: PLC0415

        configure("debug", "json")
    caplog.set_level("DEBUG")
    monkeypatch.setenv("MARKED", f"{MARKER}-as-a-secret")
    monkeypatch.setenv("MAX_ATTEMPTS", "1")
    reference = "env:MARKED"
    app = Redrive("memory://")
    forward = Forward(url=f"http://127.0.0.1:9/{MARKER}", secret=reference, headers=True)
    sources = [
        Source.github(secrets=["env:HOOK_SECRET"]),
        Source.stripe(secrets=[reference]),
        Source.shopify(insecure=True, forward=forward),
    ]
    inbox = Inbox(app, sources, now=lambda: NOW)

    @app.handler("github")
    async def fail(payload: bytes) -> None:
        raise ConnectionError("away")

    body = f'{{"id": "{MARKER}", "type": "{MARKER}"}}'.encode()
    marked = [(b"x-marked", MARKER.encode()), (b"authorization", MARKER.encode()), (b"cookie", MARKER.encode())]
    signed = [*marked, *providers.GITHUB.sign(KEY, NOW, body)]
    answers = [
        await post(inbox, "/github", body, signed, query=MARKER.encode()),
        await post(inbox, "/github", body, marked),
        await post(inbox, "/stripe", body, [*marked, (b"stripe-signature", MARKER.encode())]),
        await post(inbox, "/shopify", body, marked),
        await post(inbox, f"/{MARKER}", body, marked),
    ]
    assert [answer.status for answer in answers] == [202, 401, 401, 202, 404]
    await app.run(until_idle=True, signals=False)
    answers += [await get(inbox.admin, path) for path in ("/sources", "/metrics", "/ready", f"/{MARKER}")]
    answers.append(await get(inbox.admin, f"/github/{answers[0].json['id']}"))
    told = caplog.text + "".join(capsys.readouterr()) + repr(sources) + repr(inbox.sources) + repr(forward)
    assert "redrive" in told
    assert MARKER not in told
    assert all(MARKER.encode() not in answer.body + repr(answer.headers).encode() for answer in answers)
    letters = (await app.desk.ls("status:failed")).letters
    assert len(letters) == 2
    assert all(MARKER not in (letter.last_error or "") for letter in letters)
    await inbox.close()
    await app.close()
