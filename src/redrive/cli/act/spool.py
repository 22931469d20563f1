"""`redrive spool`: what waits in the file in front of a store, and what the store refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import typer

from redrive.cli.options import AsJson, By, Limit, Reason, Wide
from redrive.cli.output import counted, emit, say
from redrive.cli.session import author, settings_of
from redrive.cli.tables import show_table
from redrive.cli.typed import typed, typed_all
from redrive.errors import SettingsError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redrive.core.letter import Letter
    from redrive.stores.spool.spool_file import SpoolFile

T = TypeVar("T")
Spool = Annotated[str, typer.Option("--spool", callback=typed, help="The file; the setting spool if not given.")]
Refused = Annotated[list[str], typer.Argument(metavar="ID", callback=typed_all, help="Refused letters by id.")]

app = typer.Typer(no_args_is_help=True, help="Look at letters that wait for a store that is away.")


class SpoolStats(msgspec.Struct, frozen=True):
    """What a spool holds, and what became of what it held."""

    health: str
    waiting: int
    refused: int
    forwarded: int
    duplicates: int
    limit: int


class SpooledLetter(msgspec.Struct, frozen=True):
    """A letter in a spool."""

    id: str
    queue: str
    kind: str
    status: str
    last_error: str | None


class SpoolListing(msgspec.Struct, frozen=True):
    """Letters in a spool, newest first."""

    letters: list[SpooledLetter]


@app.command()
def stats(ctx: typer.Context, spool: Spool = "", as_json: AsJson = False) -> None:
    """Count the letters of the spool. Exit code 1 if any waits or was refused."""
    found = _with(ctx, spool, lambda file: file.spooled())
    shown = SpoolStats(found.health, found.waiting, found.refused, found.forwarded, found.duplicates, found.limit)
    if as_json:
        emit(shown)
    else:
        say(f"{found.health}: {found.forwarded} forwarded, {found.duplicates} duplicates, room for {found.limit}")
    if found.health != "ok":
        raise typer.Exit(1)


@app.command()
def ls(ctx: typer.Context, spool: Spool = "", limit: Limit = 50, wide: Wide = False, as_json: AsJson = False) -> None:
    """List the letters of the spool: those that wait and those that were refused, newest first."""
    letters = _with(ctx, spool, lambda file: file.letters("status:pending,in_flight,failed", limit))
    found = SpoolListing([_row(letter) for letter in letters])
    if as_json:
        return emit(found)
    if not found.letters:
        return say("the spool is empty")
    rows = [(each.id, each.queue, each.kind, each.status, each.last_error or "") for each in found.letters]
    return show_table("", ("id", "queue", "kind", "is", "error"), rows, wide=wide)


def _row(letter: Letter) -> SpooledLetter:
    status = "refused" if letter.status == "failed" else "waiting"
    return SpooledLetter(letter.id, letter.kind, str(letter.metadata.get("kind", "")), status, letter.last_error)


@app.command()
def retry(ctx: typer.Context, ids: Refused, spool: Spool = "", by: By = "", reason: Reason = "") -> None:
    """Let refused letters be forwarded again."""
    who = author(ctx, by)
    _with(ctx, spool, lambda file: file.retry(ids, by=who, reason=reason))
    say(f"{counted(len(ids), 'letter')} will be forwarded again")


@app.command()
def drop(ctx: typer.Context, ids: Refused, spool: Spool = "", by: By = "", reason: Reason = "") -> None:
    """Give refused letters up: they leave the spool and never reach the store."""
    who = author(ctx, by)
    _with(ctx, spool, lambda file: file.drop(ids, by=who, reason=reason))
    say(f"{counted(len(ids), 'letter')} dropped")


def _with(ctx: typer.Context, spool: str, work: Callable[[SpoolFile], Awaitable[T]]) -> T:
    """Open the spool, do *work*, close it; never make a file."""
    import asyncio

    from redrive.stores.spool.spool_file import SpoolFile

    settings = settings_of(ctx)
    path = spool or settings.spool
    if path is None:
        raise SettingsError(["cannot look at a spool: none is set; name its file with --spool or REDRIVE_SPOOL"])
    if not Path(path).exists():
        raise StoreUnavailable(f"cannot open the spool {path!r}: there is no such file; name another with --spool")

    async def use() -> T:
        file = SpoolFile(path, limit=settings.spool_limit)
        await file.open()
        try:
            return await work(file)
        finally:
            await file.close()

    return asyncio.run(use())
