"""`redrive top`: the books, the workers and the biggest groups, live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import AsJson
from redrive.cli.output import console, emit, table
from redrive.cli.plain import plain
from redrive.cli.session import with_store
from redrive.cli.stats import STATES, remarks

if TYPE_CHECKING:
    from rich.console import Group as Frame
    from rich.table import Table

    from redrive.desk.group import Groups
    from redrive.desk.stats import Stats
    from redrive.stores.contract import Store

_GROUPS = 8


def top(
    ctx: typer.Context,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch the books, the workers and the biggest groups of failures; Ctrl-C ends it."""
    watch = _print_each if as_json else _draw
    try:
        with_store(ctx, lambda store: watch(store, interval, once=once))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


async def _print_each(store: Store, interval: float, *, once: bool) -> None:
    import asyncio

    from redrive.desk.stats import stats

    emit(await stats(store))
    while not once:
        await asyncio.sleep(interval)
        emit(await stats(store))


async def _draw(store: Store, interval: float, *, once: bool) -> None:
    import asyncio

    from rich.live import Live

    if once:
        console().print(await _frame(store))
        return
    with Live(await _frame(store), console=console(), auto_refresh=False, screen=True) as live:
        while True:
            await asyncio.sleep(interval)
            live.update(await _frame(store), refresh=True)


async def _frame(store: Store) -> Frame:
    from rich.console import Group as Frame
    from rich.text import Text

    from redrive.desk.group import groups
    from redrive.desk.stats import stats

    found, failures = await stats(store, weeks=0), await groups(store, limit=_GROUPS)
    return Frame(
        _books(found), _workers(found), _failures(failures), Text("\n".join(plain(line) for line in remarks(found)))
    )


def _books(found: Stats) -> Table:
    rows = [("all", *(found.books[state] for state in STATES))]
    rows += [(name, *(counts.get(state, 0) for state in STATES)) for name, counts in found.by_queue.items()]
    return table("books" if found.balanced else "books (NOT BALANCED)", ("queue", *STATES), rows)


def _workers(found: Stats) -> Table:
    rows = [(one.name, "alive" if one.alive else "gone", one.in_flight, one.seen_at) for one in found.workers]
    return table("workers", ("worker", "", "in flight", "seen"), rows)


def _failures(found: Groups) -> Table:
    rows = [(one.group[:12], one.count, one.verdict, one.error_type, one.title) for one in found.groups]
    return table("failures", ("group", "count", "verdict", "error", "title"), rows)
