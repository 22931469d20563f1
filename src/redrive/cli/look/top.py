"""
`redrive top`: what fails, what is stopped, the books and the workers, live.

Owns what stands on one screen, and in which order: what needs a look is above, and what does not fit is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.look.groups import line
from redrive.cli.look.stats import SPARE, STATES, remarks, title
from redrive.cli.options import AsJson
from redrive.cli.output import counted, emit
from redrive.cli.plain import plain
from redrive.cli.session import with_desk
from redrive.cli.tables import console, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Group as Frame
    from rich.console import RenderableType

    from redrive.desk.desk import Desk
    from redrive.desk.look.group import GroupView
    from redrive.desk.look.stats import Stats

_GROUPS = 6
_REMARKS = 5
_LINES = 24  # of a screen whose height is not known


def top(
    ctx: typer.Context,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two refreshes.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch failures, breakers, books and workers. Ctrl-C ends it."""
    watch = _print_each if as_json else _draw
    try:
        with_desk(ctx, lambda desk: watch(desk, interval, once=once))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


async def _print_each(desk: Desk, interval: float, *, once: bool) -> None:
    import asyncio

    emit(await desk.stats())
    while not once:
        await asyncio.sleep(interval)
        emit(await desk.stats())


async def _draw(desk: Desk, interval: float, *, once: bool) -> None:
    import asyncio

    from rich.live import Live

    if once:
        console().print(await _frame(desk))
        return
    with Live(await _frame(desk), console=console(), auto_refresh=False, screen=True) as live:
        while True:
            await asyncio.sleep(interval)
            live.update(await _frame(desk), refresh=True)


async def _frame(desk: Desk) -> Frame:
    from rich.console import Group as Frame

    found, failures = await desk.stats(weeks=0), await desk.groups(limit=_GROUPS + 1)
    screen = console()
    height = screen.height if screen.is_terminal else _LINES
    parts = [*_remarks(found), *_failures(failures)]
    used = sum(lines for lines, _ in parts)
    parts += _books(found, max(1, (height - used) // 2 - 3))
    used = sum(lines for lines, _ in parts)
    parts += _workers(found, max(0, height - used - 4))
    return Frame(*(part for _, part in parts))


def _remarks(found: Stats) -> list[tuple[int, RenderableType]]:
    from rich.text import Text

    told = remarks(found)
    shown = [(1, Text(plain(text), style, no_wrap=True, overflow="ellipsis")) for text, style in told[:_REMARKS]]
    more = len(told) - len(shown)
    return [*shown, *([(1, Text(f"and {counted(more, 'remark')} more: redrive stats"))] if more else [])]


def _failures(found: list[GroupView]) -> list[tuple[int, RenderableType]]:
    rows = [line(one) for one in found[:_GROUPS]]
    if not rows:
        return []
    heading = "failures" if len(found) <= _GROUPS else "failures (the biggest groups)"
    return [(len(rows) + 3, table(heading, ("group", "count", "verdict", "error", "title"), rows))]


def _books(found: Stats, most: int) -> list[tuple[int, RenderableType]]:
    rows: list[Sequence[object]] = [("all", *(found.books[state] for state in STATES))]
    rows += [(name, *(counts.get(state, 0) for state in STATES)) for name, counts in found.by_queue.items()]
    heading = _cut(title(found), len(rows), most, "queue")
    return [(len(rows[:most]) + 3, table(heading, ("queue", *STATES), rows[:most], spare=SPARE))]


def _workers(found: Stats, most: int) -> list[tuple[int, RenderableType]]:
    rows = [(one.name, "alive" if one.alive else "gone", one.in_flight, one.seen_at) for one in found.workers]
    if not rows or not most:
        return []
    heading = _cut("workers", len(rows), most, "worker")
    return [(len(rows[:most]) + 3, table(heading, ("worker", "state", "in flight", "seen"), rows[:most]))]


def _cut(heading: str, rows: int, most: int, word: str) -> str:
    return heading if rows <= most else f"{heading} ({counted(rows - most, word)} more)"
