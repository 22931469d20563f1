"""
Where an exception came from, as text.

Owns the traceback that a failure keeps: the innermost frames of the exception, of its causes and of the members of
a group, each with its file and source line. It never holds the value of a variable, and leaves out redrive's own
frames. It reads each source line once, and cleans what it reads for storing and showing. Knows no judgement.
"""

from __future__ import annotations

import linecache
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from redrive.core.failures.describe import (
    NAME_LIMIT,
    clean,
    is_error,
    members_of,
    peek,
    place_of,
    steps_of,
    text_of,
    type_name,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.failures.describe import CodePlace, Step

LIMIT = 4_000  # characters; rows stay small
_FRAMES = 20  # of each exception, the innermost
_CHAIN = 5  # exceptions that led to one another
_MEMBERS = 3  # of a group
_DEPTH = 3  # groups in groups
_SOURCE = 200  # characters of a line
_TEXT = 500  # characters of an exception's text
_LARGEST = 4_000_000  # bytes of a source file that is still read
_CAUSED = "The above exception was the direct cause of the following exception:"
_DURING = "During handling of the above exception, another exception occurred:"


class Trace(NamedTuple):
    """A traceback, and the innermost place in the user's code as "module:function:line"; empty if there is none."""

    text: str
    place: str


class _Frame(NamedTuple):
    place: CodePlace
    line: int
    file: str


def trace_of(error: BaseException) -> Trace:
    """Return where *error* came from; may raise what a hostile exception makes it raise."""
    lines, found = _described(error, {id(error)}, 0)
    return Trace(_cut("\n".join(lines)), _innermost(found)) if found else Trace("", "")


def _described(error: BaseException, seen: set[int], depth: int) -> tuple[list[str], Sequence[_Frame]]:
    """Return the lines about *error*, and the frames in them: its own, or else those of its cause."""
    before, how = _before(error)
    lines: list[str] = []
    found: Sequence[_Frame] = ()
    if before is not None and id(before) not in seen and len(seen) < _CHAIN:
        seen.add(id(before))
        lines, found = _described(before, seen, depth)
        lines += ["", how, ""]
    own, shown = _frames(steps_of(error))
    lines += [*shown, _headline(error)]
    members = members_of(error) if depth < _DEPTH else []
    for member in members[:_MEMBERS]:
        inner, of_member = _described(member, seen | {id(member)}, depth + 1)
        lines += [f"  | {line}" for line in inner]
        found = (*found, *of_member)
    if len(members) > _MEMBERS:
        lines.append(f"  | and {len(members) - _MEMBERS} more")
    return lines, own or found


def _before(error: BaseException) -> tuple[BaseException | None, str]:
    """Return what led to *error*, as Python shows it: its cause, else what was being handled."""
    if is_error(cause := peek(error, "__cause__")):
        return cause, _CAUSED
    if peek(error, "__suppress_context__") is False and is_error(context := peek(error, "__context__")):
        return context, _DURING
    return None, ""


@lru_cache(maxsize=512)  # the same few lines fail a thousand times
def _frames(steps: tuple[Step, ...]) -> tuple[tuple[_Frame, ...], tuple[str, ...]]:
    """Return the frames of *steps* that are not redrive's own, and how they are shown."""
    walked = [_Frame(place_of(step), step[3], step[2]) for step in steps]
    frames = tuple(frame for frame in walked if not frame.place.is_ours)
    return frames, _shown(frames)


def _shown(frames: tuple[_Frame, ...]) -> tuple[str, ...]:
    if not frames:
        return ()
    left_out = len(frames) - _FRAMES
    more = [f"  … {left_out} frames further out"] if left_out > 0 else []
    return ("Traceback (most recent call last):", *more, *(_lines_of(frame) for frame in frames[-_FRAMES:]))


def _headline(error: BaseException) -> str:
    """Return the text of *error*; its further lines are indented, so that none can look like a frame."""
    text = clean(text_of(error), _TEXT).replace("\n", "\n      ")
    name = type_name(type(error))
    return f"{name}: {text}" if text else name


def _innermost(frames: Sequence[_Frame]) -> str:
    own = [frame for frame in frames if not frame.place.is_library] or frames
    return f"{own[-1].place.name}:{own[-1].line}" if own else ""


@lru_cache(maxsize=2048)
def _lines_of(frame: _Frame) -> str:
    source = clean(_source(frame.file, frame.line).strip(), _SOURCE)
    head = f'  File "{clean(frame.file, NAME_LIMIT)}", line {frame.line}, in {frame.place.name}'
    return f"{head}\n    {source}" if source else head


def _source(file: str, line: int) -> str:
    """Return one line of a source file, and of nothing else: a code object may name a pipe or a device as its file."""
    try:
        path = Path(file)
        if path.suffix == ".py" and path.is_file() and path.stat().st_size <= _LARGEST:
            return linecache.getline(file, line)
    except (OSError, ValueError):
        pass
    return ""


def _cut(text: str) -> str:
    """Return *text* without its middle if it is too long: it begins with the first cause and ends with the error."""
    if len(text) <= LIMIT:
        return text
    note = f"\n… (cut, it had {len(text)} characters)\n"
    room = LIMIT - len(note)
    return text[: room // 3] + note + text[-(room - room // 3) :]
