"""`redrive migrate`, `check` and `demo`: set up, look for trouble, show what it does."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from redrive.cli.options import AsJson
from redrive.cli.output import counted, emit, note, say
from redrive.cli.run import backoffs
from redrive.cli.session import absent_file, refuse_unusable, settings_of, with_store
from redrive.errors import RedriveError, SettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from redrive.app import Redrive
    from redrive.settings import Settings
    from redrive.stores.contract import Store


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What `redrive check` found."""

    ok: bool
    url: str | None
    problems: list[str]
    notes: list[str] = []


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """What `redrive migrate` did."""

    url: str
    ready: bool
    notes: list[str] = []


def migrate(
    ctx: typer.Context,
    as_json: AsJson = False,
    show: Annotated[bool, typer.Option("--print", help="Print the SQL instead of running it.")] = False,
) -> None:
    """Create the store's schema, or bring it up to date. No letter is lost."""
    import asyncio

    from redrive.settings import masked

    settings = settings_of(ctx)
    url = masked(settings.url)
    if show:
        return typer.echo(asyncio.run(_script(settings.url)))
    notes = asyncio.run(_migrate(settings.url))
    with_store(ctx, _look, create=True)
    for each in notes:
        note(f"redrive: {each}")
    return emit(Migrated(url=url, ready=True, notes=notes)) if as_json else say(f"{url} is ready")


def check(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Report every problem of settings, store and application."""
    found = _checked(ctx)
    if as_json:
        emit(found)
    else:
        for problem in found.problems:
            note(f"redrive: {problem}")
        say(counted(len(found.problems), "problem") if found.problems else f"all is well: {found.url}")
        for each in found.notes:
            say(each)
    if not found.ok:
        raise typer.Exit(1)


def demo(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show the main job on an embedded store, in under a minute."""
    from redrive.demo import main

    del ctx
    raise typer.Exit(main(as_json=as_json))


def _checked(ctx: typer.Context) -> Checked:
    from redrive.settings import masked

    try:
        settings = settings_of(ctx)
    except SettingsError as error:
        return Checked(ok=False, url=None, problems=error.problems)
    named: Counter[str] = Counter()
    unusable = _store_problems(ctx, settings.url, named)
    app, unloadable = _app(settings)
    unknown = [] if app is None else backoffs.problems_of(app, named)
    problems = [*unusable, *unloadable, *unknown, *_inbox_problems(settings)]
    notes = [*([] if unusable else _notes(settings.url)), *backoffs.notes_of(app, named)]
    return Checked(ok=not problems, url=masked(settings.url), problems=problems, notes=notes)


def _notes(url: str) -> list[str]:
    absent = absent_file(url)
    if absent is None:
        return []
    return [f"{str(absent)!r} does not exist yet: `redrive enqueue` or a worker creates it at first use"]


def _store_problems(ctx: typer.Context, url: str, named: Counter[str]) -> list[str]:
    """Return what is wrong with the store; add the backoff functions that its letters name to *named*."""
    try:
        absent = absent_file(url)
        if absent is not None:  # the first worker makes it; a check writes nothing
            refuse_unusable(url)
            return _place_problems(absent)
        named.update(with_store(ctx, backoffs.carried))
    except SettingsError as error:
        return error.problems
    except RedriveError as error:
        return [str(error)]
    return []


def _place_problems(absent: Path) -> list[str]:
    if absent.parent.is_dir() and os.access(absent.parent, os.W_OK):
        return []
    folder = str(absent.parent)
    return [f"cannot create {str(absent)!r}: {folder!r} is no folder that this user may write to; name another file"]


def _app(settings: Settings) -> tuple[Redrive | None, list[str]]:
    """Return the application that the settings name, if any, and why it cannot be loaded."""
    from redrive.cli.run.worker import load

    try:
        return (None if settings.app is None else load(settings.app)), []
    except RedriveError as error:
        return None, [str(error)]


def _inbox_problems(settings: Settings) -> list[str]:
    if not settings.inbox:  # MAX_ATTEMPTS and its siblings may be another program's
        return []
    from redrive.sources.webhook.inbox import problems_of

    return problems_of(settings)


async def _migrate(url: str) -> list[str]:
    from redrive.stores.contract import as_migrated
    from redrive.wiring import open_store

    store = as_migrated(open_store(url))
    return [] if store is None else await store.migrate()


async def _script(url: str) -> str:
    from redrive.stores.contract import as_migrated
    from redrive.wiring import open_store

    store = as_migrated(open_store(url))
    if store is None:
        return "-- nothing to run: this store creates its own schema when it is opened\n"
    return await store.script() or "-- nothing to run: the schema is up to date\n"


async def _look(store: Store) -> None:
    await store.queues()
