"""
Open what a command works on.

Owns the way from the global options to settings, a store and an author. Never lets "there is no
such database" look like "there are no letters": only commands that bring letters in may make one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

import msgspec

from redrive.cli.typed import typed
from redrive.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import typer

    from redrive.settings import Settings
    from redrive.stores.contract import Store

T = TypeVar("T")
_SQLITE = "sqlite:///"


class Globals(msgspec.Struct, frozen=True):
    """The options that stand before the command."""

    url: str | None = None
    config: str | None = None


def settings_of(ctx: typer.Context) -> Settings:
    """Return the settings; raise SettingsError with every problem."""
    from redrive.settings import load

    chosen = ctx.find_object(Globals) or Globals()
    return load(chosen.config, url=chosen.url)


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
            "or make it with `redrive migrate`"
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
