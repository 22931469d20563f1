"""
The options that the commands of the inbox share, and the sources that they describe.

Owns the way from `--source`, `--secret`, `--forward` … or `redrive.toml` to sources. Knows no server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.settings import Settings
    from redrive.sources.webhook import Source

ADMIN = "127.0.0.1:8081"
ADDRESS = "127.0.0.1:8080"
SourceName = Annotated[
    str | None,
    typer.Option("--source", metavar="PRESET", help="One source, such as github; those of redrive.toml if absent."),
]
Secrets = Annotated[
    list[str] | None,
    typer.Option("--secret", metavar="REFERENCE", help="Its secret, as env:NAME or file:PATH; may come several times."),
]
Forward = Annotated[str | None, typer.Option("--forward", metavar="URL", help="Send its events on to this address.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Take what anyone sends; only for a private network.")]
PublicUrl = Annotated[str | None, typer.Option("--public-url", metavar="URL", help="The address that Twilio calls.")]
Header = Annotated[str | None, typer.Option("--header", help="For the preset hmac: the header of the signature.")]
Events = Annotated[list[str] | None, typer.Option("--event", metavar="GLOB", help="Take only such types.")]
AdminAddress = Annotated[
    str, typer.Option("--admin-address", metavar="HOST:PORT", help="Where health, metrics and status are served.")
]


def sources_of(settings: Settings, name: str | None, given: dict[str, Any]) -> Sequence[Source]:
    """Return the source that the options describe, or those of the settings; raise SettingsError."""
    from redrive.sources.webhook.inbox import read_sources
    from redrive.sources.webhook.source import read_source

    options = {key: value for key, value in given.items() if value}
    if name is not None:
        return [read_source(name, _table(settings, name) | options)]
    if options:
        written = ", ".join(f"--{key.rstrip('s').replace('_', '-')}" for key in options)
        raise SettingsError([f"{written} says something about one source; name it with --source"])
    found = read_sources(settings.inbox)
    if not found:
        way_out = "name one (--source github --secret env:GITHUB_SECRET), or write [inbox.sources.github]"
        raise SettingsError([f"there is no source; {way_out}"])
    return found


def _table(settings: Settings, name: str) -> dict[str, Any]:
    """Return what the settings say of the source *name*; raise SettingsError if neither they nor a preset know it."""
    from redrive.core.checks.did_you_mean import did_you_mean
    from redrive.sources.webhook.source import PRESETS

    tables = settings.inbox.get("sources")
    written = tables if isinstance(tables, dict) else {}
    if name in written or name in PRESETS:
        found = written.get(name)
        return dict(found) if isinstance(found, dict) else {}
    presets, known = ", ".join(PRESETS), ", ".join(written) or "none"
    hint = did_you_mean(name, [*written, *PRESETS])
    problem = f"there is no source {name!r}: it must be one of {presets}, or of [inbox.sources] in redrive.toml"
    raise SettingsError([f"{problem} ({known}){hint}"])
