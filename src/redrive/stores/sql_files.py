"""
SQL files: statements, migrations and functions that are kept as `.sql` files next to the code that sends them.

Owns how these files are read and how a placeholder such as `{schema}` is replaced. Knows no SQL: a placeholder is
replaced wherever it stands, so its value must be fit to stand there.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = "-- name: "


def filled(text: str, pieces: Mapping[str, str]) -> str:
    """Return *text* with every `{name}` of *pieces* replaced; other braces (array literals, formats) stay."""
    for name, piece in pieces.items():
        text = text.replace(f"{{{name}}}", piece)
    return text


def read(package: str, name: str) -> str:
    """Return the text of one file of *package*; *name* may begin with a folder."""
    return resources.files(package).joinpath(*name.split("/")).read_text()


def names(package: str, folder: str) -> list[str]:
    """Return the names of the `.sql` files in a folder of *package*, sorted."""
    return sorted(file.name for file in (resources.files(package) / folder).iterdir() if file.name.endswith(".sql"))


def numbered(package: str, folder: str, pieces: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return the files of *folder* whose names begin with a number, lowest first."""
    files = [(name, read(package, f"{folder}/{name}")) for name in names(package, folder)]
    return [(int(name.partition("_")[0]), filled(text, pieces)) for name, text in files]


def named(package: str, name: str, pieces: Mapping[str, str]) -> dict[str, str]:
    """Return the statements of a file in which a line `-- name: x` stands before each of them."""
    blocks = filled(read(package, name), pieces).split(_NAME)[1:]
    return {title.strip(): body.strip() for title, _, body in (block.partition("\n") for block in blocks)}
