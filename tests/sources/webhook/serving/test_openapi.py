"""The OpenAPI document of the inbox, and a running inbox that is asked whatever the document allows."""

from __future__ import annotations

import asyncio
import json

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from tests.sources.webhook.asgi import get
from tests.sources.webhook.serving.running import running
from typer.testing import CliRunner

from redrive.cli.root import app as command_line
from redrive.sources.webhook import Inbox, Source

EXAMPLES = 5  # of each operation


def sources():
    return [
        Source.plain(insecure=True),
        Source.github(insecure=True),
        Source.slack(insecure=True),
        Source.stripe(secrets=["env:HOOK_SECRET"]),
    ]


def ask(operation, address: str) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def one(case):
        case.call_and_validate(base_url=address)

    one()


def ask_everything(document: dict, addresses: dict[str, str]) -> int:
    """Send requests that the document allows, and compare the answers with it; return how many operations."""
    operations = [found.ok() for found in schemathesis.openapi.from_dict(document).get_all_operations()]
    for operation in operations:
        (side,) = operation.definition.raw["tags"]
        ask(operation, f"http://{addresses[side]}")
    return len(operations)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
async def test_a_running_inbox_answers_as_its_document_says(app):
    inbox = Inbox(app, sources())
    app.add_handler("webhooks", lambda _payload: None)
    async with running(inbox) as (public, admin):
        document = (await get(inbox.admin, "/openapi.json")).json
        asked = await asyncio.to_thread(ask_everything, document, {"senders": public, "operators": admin})
    assert asked == len([verb for item in document["paths"].values() for verb in item])
    assert {result for _, result in inbox.counts.results} >= {"accepted", "refused"}


def test_the_command_writes_the_document_of_the_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redrive.toml").write_text(
        'url = "sqlite:///inbox.db"\n[inbox.sources.github]\nsecrets = ["env:HOOK_SECRET"]\n'
    )
    shown = CliRunner().invoke(command_line, ["inbox", "openapi"])
    assert shown.exit_code == 0, shown.output
    assert "/hooks/github" in json.loads(shown.stdout)["paths"]
    CliRunner().invoke(command_line, ["inbox", "openapi", "-o", "openapi.json"])
    assert json.loads((tmp_path / "openapi.json").read_text()) == json.loads(shown.stdout)
