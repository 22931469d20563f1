"""The pages as text: their code blocks, links and commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
_FENCE = re.compile(r"^(?P<mark><!-- not run -->\n)?```(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block."""

    language: str
    title: str
    code: str
    runs: bool


def name(page: Path) -> str:
    return str(page.relative_to(DOCS))


def blocks(page: Path, language: str = "") -> list[Block]:
    """Return the fenced blocks of *page*, in order."""
    found = [_block(match) for match in _FENCE.finditer(page.read_text())]
    return [block for block in found if not language or block.language == language]


def _block(match: re.Match[str]) -> Block:
    language, _, rest = match["info"].partition(" ")
    title = re.search(r'title="([^"]*)"', rest)
    return Block(language, title[1] if title else "", match["code"], runs=match["mark"] is None)


def prose(page: Path) -> str:
    """Return *page* without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


class Shown(NamedTuple):
    """A command as a page shows it, and what it says that it prints."""

    command: list[str]
    output: str


def console(page: Path) -> Iterator[Shown]:
    """Yield the commands of *page*, in order."""
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            yield Shown(shlex.split(line), output.strip())
