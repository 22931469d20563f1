"""`redrive inbox send`: a sample event of each source, signed as its provider signs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.inbox.client import request
from redrive.cli.inbox.options import ADDRESS, Header, PublicUrl, Secrets, SourceName, sources_of
from redrive.cli.options import AsJson
from redrive.cli.output import emit, say
from redrive.cli.session import settings_of

if TYPE_CHECKING:
    from redrive.sources.webhook import Source


def send(
    ctx: typer.Context,
    *,
    source: SourceName = None,
    secret: Secrets = None,
    public_url: PublicUrl = None,
    header: Header = None,
    to: Annotated[
        str, typer.Option(metavar="URL", help="The inbox; each sample goes to URL/{source}.")
    ] = f"http://{ADDRESS}/hooks",
    event_id: Annotated[str, typer.Option("--id", help="The event's id; a new one if absent.")] = "",
    as_json: AsJson = False,
) -> None:
    """Sign and send a sample event of each source, as its provider would."""
    from redrive.engine.clock import new_id, unix_ms

    settings = settings_of(ctx)
    given = {"secrets": secret, "public_url": public_url, "header": header, "insecure": bool(source) and not secret}
    lines = []
    for each in sources_of(settings, source, given):
        line = _send(each, settings.secret, f"{to.rstrip('/')}/{each.name}", unix_ms() // 1_000, event_id or new_id())
        lines.append(line)
        if not as_json:
            say(f"{line['source']}: {line['status']} {line['answer']}")
    if as_json:
        emit({"sent": lines})
    if any(not 200 <= line["status"] < 300 for line in lines):  # noqa: PLR2004 - HTTP's successes
        raise typer.Exit(1)


def _send(source: Source, read: Any, url: str, at: int, event_id: str) -> dict[str, Any]:
    from redrive.sources.webhook.samples import sample
    from redrive.sources.webhook.secrets import resolve

    is_standard = source.preset in ("standard", "plain")
    keys = resolve(f"source {source.name!r}", source.secrets, read, is_standard=is_standard)
    body, headers = sample(source, keys[0].key if keys else None, at, event_id)
    status, answer = request("POST", url, body, headers)
    return {"source": source.name, "url": url, "id": event_id, "status": status, "answer": answer}
