# ruff: noqa: INP001 - it stands beside generate.py, which is run by path
"""
Markdown of the generated parts.

Owns how a table and a docstring become text of a page. Knows nothing of redrive.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def first_line(thing: object) -> str:
    """Return the first sentence of a docstring."""
    return paragraphs(thing)[0]


def paragraphs(thing: object) -> list[str]:
    """Return a docstring's paragraphs, each in one line."""
    said = re.sub(r"(?<![\w*])\*(\w+)\*(?![\w*])", r"`\1`", inspect.getdoc(thing) or "")
    return [" ".join(part.split("\n")) for part in said.split("\n\n")]
