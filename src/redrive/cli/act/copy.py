"""`redrive copy`: move letters to another store."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import AsJson, By, Yes
from redrive.cli.output import counted, emit, letters, note, say
from redrive.cli.session import author, refuse_absent, use
from redrive.errors import CopyRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redrive.desk.act.copy import Copied

_SHOWN = 10  # letters that were not copied

Source = Annotated[str, typer.Argument(metavar="FROM", help="The URL of the store that has the letters.")]
Target = Annotated[str, typer.Argument(metavar="TO", help="The URL of the store that is to have them.")]


def copy(
    ctx: typer.Context, source: Source, target: Target, *, by: By = "", yes: Yes = False, as_json: AsJson = False
) -> None:
    """Copy all letters to another store. FROM is only read; stop its workers first."""
    import asyncio

    from redrive.settings import masked

    names = masked(source), masked(target)
    if source == target:
        raise CopyRefused(f"cannot copy {names[0]} to itself; name another store as TO")
    refuse_absent(source, create=False)
    refuse_absent(target, create=True)
    found = asyncio.run(_counted(source, names[0]))
    if not yes:
        typer.confirm(f"copy {letters(found)} from {names[0]} to {names[1]}?", abort=True, err=True)
    with _progress(found, quiet=as_json) as progress:
        copied = asyncio.run(_copy(source, target, author(ctx, by), names, progress))
    emit(copied) if as_json else _report(copied)
    if not copied.complete:
        raise typer.Exit(1)


async def _counted(url: str, name: str) -> int:
    from redrive.desk.act.copy import letters_of, refuse_running
    from redrive.stores.contract import Store

    async def work(store: Store) -> int:
        await refuse_running(store, name)
        return await letters_of(store)

    return await use(url, work, create=False)


async def _copy(source: str, target: str, by: str, names: tuple[str, str], progress: Callable[[int], object]) -> Copied:
    from redrive.desk.act.copy import copy as carry_over
    from redrive.stores.contract import Store

    async def into(store: Store) -> Copied:
        async def work(other: Store) -> Copied:
            return await carry_over(store, other, by=by, names=names, progress=progress)

        return await use(target, work, create=True)

    return await use(source, into, create=False)


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[Callable[[int], object]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    screen = Console(file=sys.stderr, markup=False, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, disable=quiet or not screen.is_terminal) as bar:
        task = bar.add_task("copy", total=total)
        yield lambda done: bar.update(task, completed=done)


def _report(copied: Copied) -> None:
    say(
        f"{letters(copied.letters)} in {copied.source}: {copied.copied} copied, {copied.already_there} already there, "
        f"{copied.not_copied} not copied"
    )
    for each in copied.named[:_SHOWN]:
        say(f"  not copied: {each.id} ({each.kind} in queue {each.queue}): {each.why}")
    if copied.not_copied > _SHOWN:
        say(f"  … and {copied.not_copied - _SHOWN} more; --json names up to 100")
    if copied.handled_keys:
        say(f"{counted(copied.handled_keys, 'handled key')} copied")
    for remark in copied.notes:
        note(f"redrive: {remark}")
    _say_end(copied)


def _say_end(copied: Copied) -> None:
    kept = ", ".join(
        f"{count} {status}" for status, count in copied.target_books.items() if status != "enqueued" and count
    )
    say(f"{copied.target} has {letters(copied.target_books['enqueued'])} in its books: {kept or 'nothing'}")
    if copied.missed:
        say(
            f"{letters(copied.missed)} came into {copied.source} during the copy; "
            "stop the services that enqueue there, and run this again"
        )
    elif copied.complete:
        say(f"all are copied; {copied.source} is as it was: start no more workers on it, or letters run twice")
