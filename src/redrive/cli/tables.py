"""
Tables for people: one line a row, in the width there is.

Owns the layout. Ids, statuses and numbers are never cut while anything else can be; long texts end in "…";
nothing is ever folded. `wide` asks for everything, however long the lines become. Colours tell what needs
a look; a pipe, or NO_COLOR, has none. Everything untrusted passes through `plain`, and nothing is read as markup.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from redrive.cli.plain import plain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from rich.console import Console, RenderableType
    from rich.text import Text

_CELL = 300
_WIDEST = 10_000  # columns, where nothing has to fit
_GAP = 2
# Texts that are read from their beginning give way first, then names; what is copied or compared never does.
_TEXTS = ("error", "title", "reason", "rule", "explanation", "then", "why", "kinds")
_NAMES = ("kind", "queue", "worker", "by", "to", "event", "handler", "key", "replayed", "origin", "tenant", "release",
          "error_type")  # fmt: skip
_LEAST = 10  # characters of a text or a name that are always shown
_COLOURS = {
    "failed": "red",
    "pending": "yellow",
    "in_flight": "cyan",
    "delivered": "green",
    "archived": "dim",
    "open": "bold red",
    "half_open": "yellow",
    "gone": "red",
    "alive": "green",
    "poison": "red",
    "systemic": "red",
    "dependency": "yellow",
}
_COLOURED = ("status", "verdict", "state")


def show_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, wide: bool = False, spare: str = ""
) -> None:
    """Print a table; cells are untrusted. Columns that *spare* names are left out where they are empty."""
    console(wide=wide).print(table(title, columns, rows, wide=wide, spare=spare))


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, wide: bool = False, spare: str = ""
) -> RenderableType:
    """Return a table of untrusted cells, one line each; numbers stand right."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    columns, listed = _filled(columns, [list(row) for row in rows], () if wide else spare.split(","))
    texts = [[cell(value, wide=wide) for value in row] for row in listed]
    widths = _widths(columns, texts, _WIDEST if wide else console().width)
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for at, (column, width) in enumerate(zip(columns, widths, strict=True)):
        right = bool(listed) and all(is_number(row[at]) for row in listed)
        justify = "right" if right else "left"
        made.add_column(Text(column), justify=justify, width=width, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    for row in texts:
        made.add_row(*(_styled(column, text) for column, text in zip(columns, row, strict=True)))
    return Group(Text(plain(title), style="bold red" if title.isupper() else "bold"), made) if title else made


def show_facts(rows: Iterable[tuple[str, object]]) -> None:
    """Print names and their values, one below the other; long values go on below themselves."""
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True, style="bold")
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(Text(name), _styled(name, cell(value, wide=True)))
    console().print(made)


def cell(value: object, *, wide: bool = False) -> str:
    """Return *value* as one safe line."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return moment(value, wide=wide)
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list | tuple):
        return plain(", ".join(str(one) for one in value), limit=_CELL)
    return plain(value, limit=_CELL)


def moment(value: datetime, *, wide: bool = False) -> str:
    """Return an instant in UTC: the time if it is of today, else the day too."""
    from redrive.engine.clock import unix_ms

    at = value.astimezone(UTC)
    if not wide and at.date() == datetime.fromtimestamp(unix_ms() / 1_000, UTC).date():
        return at.strftime("%H:%M:%SZ")
    return at.strftime("%Y-%m-%d %H:%M:%SZ" if wide else "%Y-%m-%d %H:%MZ")


def is_number(value: object) -> bool:
    """Say whether *value* stands right in its column: a number, also one that was counted up to a limit."""
    return isinstance(value, int | float) or (isinstance(value, str) and value.rstrip("+").isdigit())


def console(*, wide: bool = False) -> Console:
    """Return a console on the present standard output: as wide as the terminal; what is piped is never cut."""
    from rich.console import Console

    width = None if sys.stdout.isatty() and not wide else _WIDEST
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def _filled(
    columns: Sequence[str], rows: list[list[object]], spare: Collection[str]
) -> tuple[list[str], list[list[object]]]:
    """Leave out spare columns in which nothing but zeros and nothing stands."""
    kept = [
        at
        for at, column in enumerate(columns)
        if column not in spare or any(row[at] not in (0, None, "", [], ()) for row in rows)
    ]
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return how wide each column is: as its widest cell if there is room, else texts give way, then names."""
    from rich.cells import cell_len

    widths = [max(cell_len(text) for text in (column, *(row[at] for row in rows))) for at, column in enumerate(columns)]
    for yielding, least in ((_TEXTS, _LEAST), (_NAMES, _LEAST), (columns, 1)):
        places = [at for at, column in enumerate(columns) if column in yielding]
        while places and sum(widths) + _GAP * (len(widths) - 1) > room:
            widest = max(places, key=lambda at: widths[at])
            if widths[widest] <= max(least, cell_len(columns[widest]) if least > 1 else 1):
                break
            widths[widest] -= 1
    return widths


def _styled(column: str, text: str) -> Text:
    from rich.text import Text

    return Text(text, style=_COLOURS.get(text, "") if column in _COLOURED else "")
