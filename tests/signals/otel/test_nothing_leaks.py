"""A marker in payload, key, headers, query, error text and secret is in no span, metric or log line."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from tests.signals.otel.seen import Seen
from tests.sources.webhook.asgi import get, post
from tests.sources.webhook.forwarding.destination import answer, destination

from redrive import Letter, Redrive, Reject, RetryPolicy
from redrive.signals.log import configure
from redrive.sources.webhook import Forward, Inbox, Source
from redrive.sources.webhook.signatures import providers
from redrive.workflow import DeadLetterQueue

MARKER = "marker-5c1d-never-shown"
SECRET = f"{MARKER}-as-a-secret"
NOW = 1_760_000_000
MARKED: dict[str, Any] = {
    "headers": [("x-marked", MARKER.encode())],
    "key": MARKER,
    "idempotency_key": MARKER,
    "metadata": {"note": MARKER},
    "tenant": MARKER,
}


class Shown:
    """Everything that a process shows of its letters, except what it keeps of an error for people."""

    def __init__(self, seen: Seen, caplog: Any, capsys: Any) -> None:
        self._seen, self._caplog, self._capsys = seen, caplog, capsys

    def telemetry(self) -> str:
        text = self._seen.all_text()
        assert "messaging.system" in text
        return text

    def log(self) -> str:
        return self._caplog.text + "".join(self._capsys.readouterr())


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def shown(seen: Seen, caplog: Any, capsys: Any) -> Shown:
    caplog.set_level("DEBUG")
    return Shown(seen, caplog, capsys)


async def test_of_a_letter_that_fails_and_is_replayed(seen: Seen, shown: Shown):
    app = Redrive("memory://", tracing=seen.tracing)

    @app.handler("bad", policy=RetryPolicy(max_attempts=2, first=0.0, cap=0.0))
    async def bad(letter: Letter) -> None:
        raise ConnectionError("the partner is away")

    @app.handler("told")
    async def told(letter: Letter) -> None:
        raise Reject(MARKER)

    async with app:
        receipt = await app.enqueue("bad", {"card": MARKER}, **MARKED)
        await app.run(until_idle=True)
        await app.desk.replay(receipt.id, reason="once more")
        await app.run(until_idle=True)
        assert MARKER not in shown.log()
        await app.enqueue("told", {"card": MARKER}, **MARKED)  # its error's own text is for people, not for spans
        await app.run(until_idle=True)
    assert MARKER not in shown.telemetry()
    assert len(seen.spans("handle")) == 5


@pytest.mark.parametrize("form", ["logging", "structlog"])
async def test_of_a_webhook_and_its_forward(seen: Seen, shown: Shown, form: str, monkeypatch: Any):
    if form == "structlog":
        configure("debug", "json")
    monkeypatch.setenv("MARKED", SECRET)
    reference = "env:MARKED"
    app = Redrive("memory://", tracing=seen.tracing)
    async with destination() as there:
        there.answers = [answer(503, f"x-marked: {MARKER}"), answer(200)]
        forward = Forward(url=f"{there.url}/{MARKER}?token={MARKER}", secret=reference, headers=True)
        sources = [Source.github(secrets=[reference], forward=forward), Source.stripe(secrets=[reference])]
        inbox = Inbox(app, sources, now=lambda: NOW)
        app.handler_defaults("github", policy=RetryPolicy(first=0.0, cap=0.0))
        await app.open()
        body = f'{{"card": "{MARKER}"}}'.encode()
        marked = [(b"x-marked", MARKER.encode()), (b"authorization", MARKER.encode()), (b"baggage", MARKER.encode())]
        signed = [*marked, *providers.GITHUB.sign(SECRET.encode(), NOW, body)]
        assert (await post(inbox, "/github", body, signed, query=MARKER.encode())).status == 202
        assert (await post(inbox, "/github", body, marked)).status == 401
        assert (await post(inbox, "/stripe", body, [*marked, (b"stripe-signature", MARKER.encode())])).status == 401
        await app.run(until_idle=True, signals=False)
        assert (await get(inbox.admin, "/metrics")).status == 200
        await inbox.close()
    await app.close()
    assert len(there.got) == len(seen.spans("POST")) == 2
    assert MARKER not in shown.telemetry() + shown.log()


async def test_of_a_failed_workflow(seen: Seen, shown: Shown):
    app = Redrive("memory://", tracing=seen.tracing)
    queue = DeadLetterQueue(store=app)
    task = {"type": "ingest", "password": MARKER}
    await queue.enqueue("wf_1", task, [MARKER], ConnectionError("away"), "immediate", metadata={"note": MARKER})

    async def again(task: Any, repos: Any) -> Any:
        raise ConnectionError("still away")

    await queue.retry_task("wf_1", callback=again)
    assert MARKER not in shown.log()
    await queue.enqueue("wf_2", task, [MARKER], MARKER, "immediate")

    async def told(task: Any, repos: Any) -> Any:
        return {"status": "failed", "error": MARKER}

    await queue.retry_task("wf_2", callback=told)
    await queue.shutdown()
    await app.close()
    assert len(seen.spans("handle")) == 2
    assert MARKER not in shown.telemetry()


async def test_of_letters_that_a_spool_keeps_forwards_and_refuses(seen: Seen, shown: Shown, tmp_path: Any):
    away = Redrive(f"sqlite:///{tmp_path}/none/away.db", spool=f"{tmp_path}/spool.db", tracing=seen.tracing)
    with contextlib.suppress(Exception):  # its folder does not exist, so the store is away
        async with away:
            assert (await away.enqueue("a", {"card": MARKER}, **MARKED)).spooled
    (tmp_path / "none").mkdir()
    app = Redrive(f"sqlite:///{tmp_path}/none/away.db", spool=f"{tmp_path}/spool.db", tracing=seen.tracing)
    letters: list[Letter] = []

    @app.handler("a")
    async def keep(letter: Letter) -> None:
        letters.append(letter)
        app.stop()

    async with app:
        await app.run(signals=False)
    assert letters[0].metadata["traceparent"].startswith("00-")
    assert seen.one("handle").parent.span_id == seen.one("enqueue").get_span_context().span_id
    assert MARKER not in shown.telemetry() + shown.log()
