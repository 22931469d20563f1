"""
What the demo shows.

Owns headlines, tables and the live line, on a terminal and in a file: where nothing can be redrawn,
progress is a few plain lines. Knows nothing of letters beyond the books.
"""

from __future__ import annotations

import io
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_WIDEST = 100  # columns; longer lines are hard to read
_INDENT = 3
_QUARTERS = 4  # plain lines of progress


class Screen:
    """Where the story is told."""

    def __init__(self, *, stderr: bool = False) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode gets question marks, not a crash
        console = Console(highlight=False, emoji=False, stderr=stderr)
        width = min(console.width, _WIDEST) if console.is_terminal else _WIDEST
        self._console = Console(highlight=False, emoji=False, width=width, stderr=stderr)
        self._steps = 0
        self._owes_a_line = False  # a table is followed by an empty line, and a step begins with one

    @property
    def is_live(self) -> bool:
        """Whether a line can be redrawn."""
        return self._console.is_terminal and not self._console.is_dumb_terminal

    # ------------------------------------------------------------------ words

    def title(self, name: str, promise: str) -> None:
        """Print the first lines."""
        self._console.print(f"\n[bold]{name}[/]  [dim]{promise}[/]")

    def step(self, what: str, why: str) -> None:
        """Begin the next step: *what* happens and *why* it matters."""
        self._steps += 1
        self._owes_a_line = False
        self._console.print(f"\n[bold cyan]{self._steps}[/]  [bold]{what}[/]")
        self.say(f"[dim]{why}[/]")

    def say(self, text: str) -> None:
        """Print a line of the story, with markup."""
        above, self._owes_a_line = int(self._owes_a_line), False
        self._console.print(Padding(Text.from_markup(text), (above, 0, 0, _INDENT), expand=False))

    def quote(self, text: str, *, style: str = "") -> None:
        """Print what is to be read or copied exactly; never broken."""
        self._console.print(Text(" " * (_INDENT + 2) + text, style=style), soft_wrap=True)

    def done(self, text: str) -> None:
        """Print what was achieved."""
        self.say(f"[green]✓[/] {text}")

    def trouble(self, text: str) -> None:
        """Print what is wrong."""
        self.say(f"[bold red]✗[/] {escape(text)}")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table; numbers stand right and cells are printed as they are."""
        made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim", border_style="dim")
        for at, column in enumerate(columns):
            is_number = all(isinstance(row[at], int) for row in rows)
            made.add_column(column, justify="right" if is_number else "left", no_wrap=is_number)
        for row in rows:
            made.add_row(*(Text(count(value) if isinstance(value, int) else str(value)) for value in row))
        self._console.print(Padding(made, (1, 0, 0, _INDENT), expand=False))
        self._owes_a_line = True

    def sum(self, total: str, parts: Sequence[str], books: Mapping[str, int]) -> None:
        """Print that *total* is the sum of *parts*."""
        heads = [total, *(f"{sign} {part}" for sign, part in zip("=" + "+" * len(parts), parts, strict=False))]
        made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
        for head in heads:
            made.add_column(head, justify="right", no_wrap=True)
        made.add_row(*(count(books[name]) for name in (total, *parts)), style="bold")
        self._console.print(Padding(made, (1, 0, 0, _INDENT), expand=False))
        self._owes_a_line = True

    # ------------------------------------------------------------------ progress

    @contextmanager
    def progress(self, total: int) -> Iterator[Callable[[Mapping[str, int]], None]]:
        """Show the books as they change: call what is yielded with each new state of them."""
        if not self.is_live:
            yield _Milestones(self, total)
            return
        columns = (TextColumn(" " * (_INDENT - 1)), BarColumn(bar_width=16), TextColumn("{task.description}"))
        with Progress(*columns, console=self._console) as bar:
            task = bar.add_task("", total=total)
            yield lambda books: bar.update(task, completed=_settled(books), description=_line(books))


class _Milestones:
    """Progress where nothing can be redrawn: one line a quarter."""

    def __init__(self, screen: Screen, total: int) -> None:
        self._screen, self._total, self._next = screen, total, 1

    def __call__(self, books: Mapping[str, int]) -> None:
        reached = _settled(books) * _QUARTERS // self._total
        if reached >= self._next:
            self._next = reached + 1
            self._screen.say(_line(books))


def count(number: int) -> str:
    """Return *number* as people write it."""
    return f"{number:,}"


def _settled(books: Mapping[str, int]) -> int:
    return books["delivered"] + books["failed"] + books["archived"]


def _line(books: Mapping[str, int]) -> str:
    shown = ("delivered", "failed", "in_flight", "pending")
    return " · ".join(f"{count(books[name])} {name.replace('_', ' ')}" for name in shown)
