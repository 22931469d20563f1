"""
Print results.

Owns the two faces of every command: `--json` (the documented shape, unchanged in meaning and safe
on a terminal) and a table for people. Everything untrusted passes through `plain`, and nothing is
ever read as markup.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from redrive.cli.plain import escaped_json, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console
    from rich.table import Table

_CELL = 300
_WHOLE = ("id", "group", "status", "verdict")  # to be copied or compared, so never broken
_PIPED = 160  # columns, where there is no terminal to fit


def emit(value: object) -> None:
    """Print *value* as JSON on standard output."""
    sys.stdout.write(json_text(value) + "\n")
    sys.stdout.flush()


def json_text(value: object) -> str:
    """Return *value* as indented JSON, in which no character can act on a terminal."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate in some text; JSON for other programs cannot carry it
        encoded = msgspec.json.encode(_cleaned(msgspec.to_builtins(value, builtin_types=(msgspec.Raw,))))
    return escaped_json(_indented(encoded).decode("utf-8"))


def note(text: str, *, lines: bool = False) -> None:
    """Print a remark for people on standard error, where it never mixes with results."""
    sys.stderr.write(plain(text, lines=lines) + "\n")
    sys.stderr.flush()


def say(text: str, *, lines: bool = False) -> None:
    """Print a line for people, or several if *lines*."""
    console().print(plain(text, lines=lines), markup=False, highlight=False, emoji=False, soft_wrap=True)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; cells are untrusted."""
    console().print(table(title, columns, rows))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table of untrusted cells; numbers stand right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=Text(plain(title)) if title else None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    listed = [list(row) for row in rows]
    for at, column in enumerate(columns):
        number = bool(listed) and all(isinstance(row[at], int | float) for row in listed)
        whole = number or column in _WHOLE
        made.add_column(Text(column), justify="right" if number else "left", overflow="fold", no_wrap=whole)
    for row in listed:
        made.add_row(*(Text(cell(value)) for value in row))
    return made


def letters(count: int) -> str:
    """Return *count* letters, in words."""
    return "1 letter" if count == 1 else f"{count} letters"


def cell(value: object) -> str:
    """Return *value* as one safe line."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list | tuple):
        return plain(", ".join(str(one) for one in value), limit=_CELL)
    return plain(value, limit=_CELL)


def console() -> Console:
    """Return a console on the present standard output."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPED
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def _indented(encoded: bytes) -> bytes:
    try:
        return msgspec.json.format(encoded, indent=2)
    except RecursionError:  # a payload nested to the very limit; it is right as it is
        return encoded


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value, lines=True)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(inner) for inner in value]
    return value
