"""
Open what a command works on.

Owns the way from the global options to the settings, the store, the desk and the author; a command reads the settings
once and opens the store once. Never lets "there is no such database" look like "there are no letters": only commands
that bring letters in may create one. Knows no command.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec

from redrive.cli.typed import typed
from redrive.errors import StoreUnavailable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    import typer

    from redrive.desk.desk import Desk
    from redrive.settings import Settings
    from redrive.signals.hub import Hub
    from redrive.stores.contract import Store

T = TypeVar("T")
_SQLITE = "sqlite:///"


class Globals(msgspec.Struct, frozen=True):
    """The options that stand before the command."""

    url: str | None = None
    config: str | None = None


_SETTINGS = "redrive.settings"  # where a command keeps what it has read


def settings_of(ctx: typer.Context) -> Settings:
    """Return the settings, read at the first call; raise SettingsError with every problem."""
    from redrive.settings import load

    if _SETTINGS not in ctx.meta:
        chosen = ctx.find_object(Globals) or Globals()
        ctx.meta[_SETTINGS] = load(chosen.config, url=chosen.url)
    found: Settings = ctx.meta[_SETTINGS]
    return found


class Session(NamedTuple):
    """An open store's desk, and the event loop that both belong to."""

    desk: Desk
    runner: asyncio.Runner

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do *work* on the event loop; between two calls the terminal may ask a question."""
        return self.runner.run(work)


@contextmanager
def opened(ctx: typer.Context, *, by: str = "", create: bool = False) -> Iterator[Session]:
    """Open the store once for all that a command does; refuse a database that does not exist unless *create*."""
    import asyncio

    from redrive.desk.desk import Desk
    from redrive.wiring import open_store

    settings = settings_of(ctx)
    refuse_absent(settings.url, create=create)
    store = open_store(settings.url, create=create)
    with asyncio.Runner() as runner:
        runner.run(store.open())
        try:
            yield Session(Desk(store, by=author(ctx, by), announce=_listeners(settings)), runner)
        finally:
            runner.run(store.close())


def with_desk(
    ctx: typer.Context, work: Callable[[Desk], Coroutine[Any, Any, T]], *, by: str = "", create: bool = False
) -> T:
    """Open the store, do *work* at its desk, close the store."""
    with opened(ctx, by=by, create=create) as session:
        return session.run(work(session.desk))


def with_store(ctx: typer.Context, work: Callable[[Store], Awaitable[T]], *, create: bool = False) -> T:
    """Open the store, do *work*, close the store; refuse a database that does not exist unless *create*."""
    import asyncio

    url = settings_of(ctx).url
    refuse_absent(url, create=create)
    return asyncio.run(use(url, work, create=create))


def author(ctx: typer.Context, by: str) -> str:
    """Return who acts: as given, as set, or user@host."""
    import socket

    return typed(by or settings_of(ctx).by or f"{_user()}@{socket.gethostname()}")


def _listeners(settings: Settings) -> Hub:
    """Return the hub that a command announces its facts to; they are logged if a log level is set."""
    from redrive.signals.hub import Hub
    from redrive.signals.log import configure, log_facts

    if "log_level" in settings.model_fields_set:
        configure(settings.log_level, settings.log_format)
    hub = Hub()
    hub.listen(log_facts)
    return hub


async def use(url: str, work: Callable[[Store], Awaitable[T]], *, create: bool) -> T:
    """Open the store behind *url*, do *work*, close it."""
    from redrive.wiring import open_store

    store = open_store(url, create=create)
    await store.open()
    try:
        return await work(store)
    finally:
        await store.close()


def absent_file(url: str) -> Path | None:
    """Return the file that *url* names, if there is none yet, or nothing in it."""
    path = Path(unquote(url.removeprefix(_SQLITE).partition("?")[0]))
    return path if url.startswith(_SQLITE) and (not path.exists() or not path.stat().st_size) else None


def refuse_absent(url: str, *, create: bool) -> None:
    """Refuse what no command can use, and what does not exist, unless it may *create* it."""
    if url.startswith("memory:"):
        raise StoreUnavailable(
            f"cannot use {url!r} from the command line: a memory store ends with its process; "
            "name a database, such as --url sqlite:///redrive.db"
        )
    absent = None if create else absent_file(url)
    if absent is not None:
        refuse_unusable(url)
        found = "it is empty" if absent.exists() else "there is no such file"
        raise StoreUnavailable(
            f"cannot open {str(absent)!r}: {found}; name another with --url or REDRIVE_URL, "
            "or create it with `redrive migrate`"
        )


def refuse_unusable(url: str) -> None:
    """Raise SettingsError for a URL behind which there can be no store, whether or not its file is there."""
    from redrive.wiring import open_store

    open_store(url)  # opens nothing yet


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "unknown"
