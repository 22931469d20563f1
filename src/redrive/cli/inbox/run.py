"""`redrive inbox run`: receive webhooks until told to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from redrive.cli.inbox.options import (
    ADDRESS,
    ADMIN,
    AdminAddress,
    Events,
    Forward,
    Header,
    Insecure,
    PublicUrl,
    Secrets,
    SourceName,
    sources_of,
)
from redrive.cli.options import AsJson
from redrive.cli.output import emit, say
from redrive.cli.session import Globals, settings_of
from redrive.errors import SettingsError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    from redrive.app import Redrive
    from redrive.sources.webhook import Inbox


def run(
    ctx: typer.Context,
    *,
    source: SourceName = None,
    secret: Secrets = None,
    forward: Forward = None,
    insecure: Insecure = False,
    public_url: PublicUrl = None,
    header: Header = None,
    event: Events = None,
    app: Annotated[str | None, typer.Option(metavar="APP", help="The application with the handlers: shop:app.")] = None,
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where senders post to.")] = ADDRESS,
    admin_address: AdminAddress = ADMIN,
    workers: Annotated[str, typer.Option(help="here, or elsewhere: another process has the handlers.")] = "here",
    as_json: AsJson = False,
) -> None:
    """Receive webhooks and process them until told to stop. SIGTERM finishes requests, drains and ends."""
    import asyncio

    from redrive.cli.run.worker import set_up_log

    settings = settings_of(ctx)
    set_up_log(settings)
    given = {
        "secrets": secret,
        "forward": forward,
        "insecure": insecure,
        "public_url": public_url,
        "header": header,
        "events": event,
    }
    inbox = _inbox(ctx, app or settings.app, sources_of(settings, source, given), workers)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(inbox, address, admin_address))
    results = {f"{name}.{result}": count for (name, result), count in inbox.counts.results.items()}
    return emit({"ended": "stopped", "results": results}) if as_json else say("stopped")


def loop_factory() -> Callable[[], AbstractEventLoop] | None:
    """Return what makes the event loop: uvloop, which is quicker, if it is installed."""
    from importlib import import_module

    try:
        return cast("Callable[[], AbstractEventLoop]", import_module("uvloop").new_event_loop)
    except ModuleNotFoundError:
        return None


def _inbox(ctx: typer.Context, name: str | None, sources: Any, workers: Any) -> Inbox:
    from redrive.cli.run.worker import load
    from redrive.sources.webhook import Inbox

    try:
        return Inbox(_app(ctx) if name is None else load(name), sources, workers=workers)
    except ModuleNotFoundError as missing:
        raise _not_installed(missing) from None


def _not_installed(missing: ModuleNotFoundError) -> SettingsError:
    return SettingsError([f"cannot run the inbox: {missing.name} is not installed; pip install 'redrive[webhook]'"])


def _app(ctx: typer.Context) -> Redrive:
    """Return an application without handlers: forwards are enough."""
    import os

    from redrive.app import Redrive

    chosen = ctx.find_object(Globals) or Globals()
    if chosen.config is not None:
        os.environ["REDRIVE_CONFIG"] = chosen.config
    return Redrive(chosen.url)


async def _serve(inbox: Inbox, address: str, admin_address: str) -> None:
    import asyncio

    try:
        from redrive.sources.webhook.serving import server
    except ModuleNotFoundError as missing:
        raise _not_installed(missing) from None
    with server.listen(address) as public, server.listen(admin_address) as admin:
        stop = asyncio.Event()
        server.stop_on_signals(stop, inbox.app)
        say(f"receiving on http://{server.name_of(public)}/hooks/{{source}}; admin on http://{server.name_of(admin)}")
        await server.serve(inbox, public, admin, stop)
