"""
Print results.

Owns `--json` (the documented shape, unchanged in meaning and safe on a terminal) and lines for people;
tables are laid out in `tables`. Everything untrusted passes through `plain`, and nothing is ever read
as markup.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from redrive.cli.plain import escaped_json, plain
from redrive.cli.tables import console


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


def tell(text: str, style: str = "") -> None:
    """Print a sentence for people, which goes on below itself, between words, where the line ends."""
    from rich.text import Text

    screen = console()
    for n, line in enumerate(Text(plain(text), style=style).wrap(screen, screen.width - 2, overflow="fold")):
        line.rstrip()
        screen.print(Text("  " if n else "").append_text(line), soft_wrap=True)


def counted(count: int, word: str) -> str:
    """Return *count* of what *word* names, in words: 1 letter, 2 letters."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def letters(count: int) -> str:
    """Return *count* letters, in words."""
    return counted(count, "letter")


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
