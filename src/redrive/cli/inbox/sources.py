"""`redrive inbox sources`: each source, its last delivery and its refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from redrive.cli.inbox.client import request
from redrive.cli.inbox.options import ADMIN, AdminAddress, sources_of
from redrive.cli.options import AsJson
from redrive.cli.output import emit, say
from redrive.cli.session import settings_of, with_store
from redrive.cli.tables import show_table
from redrive.errors import SourceError

if TYPE_CHECKING:
    from redrive.sources.webhook import Source
    from redrive.stores.contract import Store


def sources(ctx: typer.Context, admin_address: AdminAddress = ADMIN, as_json: AsJson = False) -> None:
    """Show each source: its configuration, its last delivery, and what a running inbox refused."""
    settings = settings_of(ctx)
    found = sources_of(settings, None, {})
    kept = with_store(ctx, lambda store: _last(store, [each.name for each in found]), create=True)
    live = _live(admin_address)
    lines = [_line(each, kept[each.name], live.get(each.name, {})) for each in found]
    if as_json:
        return emit({"sources": lines, "running": bool(live)})
    columns = ("name", "preset", "signed", "secrets", "events", "forward", "letters", "last", "refusals")
    show_table("", columns, ([line[column] for column in columns] for line in lines))
    return (
        None
        if live
        else say(f"no inbox answers on {admin_address}: refusals are not known; name another by --admin-address")
    )


def _line(source: Source, kept: tuple[int, Any], live: dict[str, Any]) -> dict[str, Any]:
    refusals = live.get("refusals", {})
    return {
        "name": source.name,
        "preset": source.preset,
        "signed": not source.insecure,
        "secrets": len(source.secrets),
        "events": list(source.events),
        "forward": source.forward.destination if source.forward else None,
        "letters": kept[0],
        "last": kept[1],
        "results": live.get("results", {}),
        "refusals": ", ".join(f"{count} {why}" for why, count in refusals.items()) or None,
    }


async def _last(store: Store, names: list[str]) -> dict[str, tuple[int, Any]]:
    from redrive.core.query import parse

    found = {}
    for name in names:
        query = parse(f"origin:webhook:{name}")
        page = await store.find(query, limit=1, payloads=False)
        found[name] = (await store.count(query), page.letters[0].created_at if page.letters else None)
    return found


def _live(address: str) -> dict[str, Any]:
    """Return what a running inbox says of its sources; nothing if none answers."""
    import msgspec

    try:
        status, text = request("GET", f"http://{address}/sources")
        told = msgspec.json.decode(text) if status == 200 else {}  # noqa: PLR2004 - HTTP's yes
    except (SourceError, msgspec.DecodeError, ModuleNotFoundError):
        return {}
    return {each["name"]: each for each in told.get("sources", [])}
