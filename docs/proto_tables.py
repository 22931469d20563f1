# ruff: noqa: INP001 - stands beside the pages that it writes
"""
Tables of the pipeline's messages, from the proto files themselves.

Owns how a message, an enum or a service becomes a table: names, numbers, types and the comments that stand there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import redrive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROTOS = Path(redrive.__file__).parent / "sources" / "pipeline" / "protos"
_EMPTY = r"^(?:message|enum|service) (\w+) \{\}"
_FILLED = r"((?:^//[^\n]*\n)*)^(message|enum|service) (\w+) \{(.*?)^\}"
_BLOCK = re.compile(f"{_EMPTY}|{_FILLED}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\s+(?!reserved|//|rpc|oneof)(?:([\w<>., ]+?) )?(\w+) = (\d+);(?:\s*// (.*))?$", re.MULTILINE)
_CALL = re.compile(r"((?:^\s+//[^\n]*\n)*)^\s+rpc (\w+)\((.*?)\) returns \((.*?)\);", re.MULTILINE)


def protos(*names: str) -> Callable[[], str]:
    """Return what makes one section a message, enum and service, for these files."""
    return lambda: "\n\n".join(part for name in names for part in _file(name))


def _file(name: str) -> Iterator[str]:
    yield f"## {name}.proto"
    yield from _sections((PROTOS / f"{name}.proto").read_text())


def _sections(text: str) -> Iterator[str]:
    for found in _BLOCK.finditer(text):
        empty, comment, kind, name, body = found.groups()
        if empty:
            yield f"### {empty}\n\nIt has no fields."
            continue
        table = _calls(body) if kind == "service" else _fields(body)
        said = _sentence(comment)
        yield "\n\n".join(part for part in (f"### {name}", said, table) if part)


def _fields(body: str) -> str:
    rows = [
        f"| `{name}` | {number} | {_kind(kind)} | {note or ''} |" for kind, name, number, note in _FIELD.findall(body)
    ]
    return "\n".join(["| field | number | type | means |", "| --- | --- | --- | --- |", *rows])


def _calls(body: str) -> str:
    rows = [
        f"| `{name}` | `{asked}` | `{answer}` | {_sentence(said)} |"
        for said, name, asked, answer in _CALL.findall(body)
    ]
    return "\n".join(["| call | takes | answers | means |", "| --- | --- | --- | --- |", *rows])


def _kind(text: str) -> str:
    return f"`{text.removeprefix('google.protobuf.')}`" if text else ""


def _sentence(comment: str) -> str:
    return " ".join(line.strip().removeprefix("//").strip() for line in comment.splitlines()).replace("|", "\\|")
