"""`redrive inbox gaps`: sequence numbers and ids that never arrived."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import AsJson
from redrive.cli.output import counted, emit, say
from redrive.cli.session import with_store
from redrive.cli.tables import console
from redrive.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redrive.stores.contract import Store

_PAGE = 500  # letters read at once


def gaps(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The source's name.")],
    ids: Annotated[
        Path | None, typer.Option(help="A file with one event id a line: which of them never arrived?")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List gaps in a source's sequence numbers, and ids that never arrived; letters past retention count as absent."""
    asked = _ids(ids) if ids else []
    holes, missing, seen = with_store(ctx, lambda store: _gaps(store, source, asked, quiet=as_json))
    if as_json:
        return emit({"source": source, "numbers": seen, "gaps": holes, "asked": len(asked), "missing": missing})
    for first, last in holes:
        say(f"{first}" if first == last else f"{first} to {last}")
    for each in missing:
        say(each)
    return say(
        f"{counted(len(holes), 'gap')} in {counted(seen, 'number')}; {len(missing)} of {len(asked)} ids never arrived"
    )


def _ids(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError([f"cannot read ids from {str(path)!r}: {error}"]) from None


async def _gaps(
    store: Store, source: str, asked: list[str], *, quiet: bool
) -> tuple[list[tuple[int, int]], list[str], int]:
    from redrive.sources.webhook.events.identity import key_of, letter_id

    with _progress(quiet=quiet) as step:
        numbers = await _numbers(store, source, step)
        missing = []
        for each in asked:
            if await store.get(letter_id(key_of(source, each))) is None:
                missing.append(each)
            step(1)
    holes = [(low + 1, high - 1) for low, high in pairwise(numbers) if high > low + 1]
    return holes, missing, len(numbers)


async def _numbers(store: Store, source: str, step: Callable[[int], object]) -> list[int]:
    """Return the sequence numbers of the letters that are kept, sorted."""
    from redrive.core.query import parse

    query = parse(f"origin:webhook:{source}")
    found: set[int] = set()
    cursor = None
    while True:
        page = await store.find(query, cursor=cursor, limit=_PAGE, payloads=False)
        found |= {letter.metadata["sequence"] for letter in page.letters if "sequence" in letter.metadata}
        step(len(page.letters))
        cursor = page.cursor
        if cursor is None:
            return sorted(found)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int], object]]:
    """Give a function that shows how many letters were read; nothing is shown in a pipe."""
    from rich.progress import Progress, SpinnerColumn, TextColumn

    screen = console()
    columns = (SpinnerColumn(), TextColumn("{task.completed} letters looked at"))
    with Progress(*columns, console=screen, transient=True, disable=quiet or not screen.is_terminal) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda count: bar.advance(task, count)
