"""
What an exception says, as plain data.

Owns reading exceptions that may be hostile: texts that raise, are no text or are
100 MB long, control characters, lone surrogates, groups of thousands, causes that run
in circles. What is read here can be stored, sent and shown. Judges nothing.
"""

from __future__ import annotations

import sys
from collections import deque
from functools import lru_cache
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.core.checks.refusals import of_msgspec, of_pydantic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

MESSAGE_LIMIT = 8192  # characters of a kept error message
_OWN_LIMIT = MESSAGE_LIMIT // 2  # of what an error with causes says itself
NAME_LIMIT = 200
FRAMES_LIMIT = 50
_WALK_LIMIT = 5_000  # traceback entries looked at
_LEAVES_LIMIT = 100
_SHOWN = 3  # causes and group members that are spelled out
_SHOWN_LIMIT = 500

_SPACES = {ord("\n"), ord("\t")}
_UNFIT = [*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000)]  # controls and lone surrogates
_REPLACEMENTS = {point: "\N{REPLACEMENT CHARACTER}" for point in _UNFIT if point not in _SPACES} | {ord("\r"): ""}


def describe(error: BaseException) -> tuple[str, str, tuple[str, ...]]:
    """Return the type, the message and the frames of *error*, all fit to be stored; never raises."""
    return *say(error), frames_of(error)


def say(error: BaseException) -> tuple[str, str]:
    """Return the type and the message alone: frames cost as much again."""
    kind = type(error)
    name = _plain_name(kind) if type(kind) is type else type_name(kind)  # type: ignore[arg-type]  # it can be hashed
    return name, clean(_message(error), MESSAGE_LIMIT)


def own_text(error: BaseException) -> str | None:
    """Return what *error* itself says, where its message also names causes or members; None where it does not."""
    return clean(text_of(error), _OWN_LIMIT) if _has_more(error) else None


def _has_more(error: BaseException) -> bool:
    return peek(error, "__cause__") is not None or issubclass(type(error), BaseExceptionGroup)


def clean(text: str, limit: int) -> str:
    """Return *text* in at most *limit* characters, without controls and lone surrogates; a cut says so."""
    if type(text) is not str:
        text = str.__getitem__(text, slice(None))  # exactly a str: a subclass would bring its own methods along
    if len(text) > limit:
        note = f" … (cut, it had {len(text)} characters)"
        text = text[: max(0, limit - len(note))] + note[:limit]
    return text if text.isprintable() else text.translate(_REPLACEMENTS)


def peek(thing: object, name: str) -> Any:
    """Return the attribute *name* of *thing*, or None; never raises."""
    try:
        return getattr(thing, name, None)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a property of a stranger may raise anything, also SystemExit
        return None


def is_error(thing: object) -> bool:
    """Return whether *thing* is an exception, without asking it."""
    return issubclass(type(thing), BaseException)


def type_name(kind: type) -> str:
    """Return the qualified name of an exception class; builtins and redrive's own go by their bare name."""
    module, name = peek(kind, "__module__"), peek(kind, "__qualname__")
    name = name if type(name) is str else "?"
    if type(module) is not str or module == "builtins" or _is_ours(module):
        return clean(name, NAME_LIMIT)
    return clean(f"{module[:NAME_LIMIT]}.{name}", NAME_LIMIT)


@lru_cache(maxsize=512)  # see `_place`
def _plain_name(kind: type) -> str:
    return type_name(kind)


def text_of(error: BaseException) -> str:
    """Return what *error* says as exactly a str, or why it says nothing; never raises."""
    try:
        said = _refusal(error) or str(error)
        return said if type(said) is str else str.__getitem__(said, slice(None))  # see `clean`
    except KeyboardInterrupt:
        raise
    except BaseException as trouble:  # noqa: BLE001 - see `peek`
        return f"(its text cannot be read: {type_name(type(trouble))})"


def _refusal(error: BaseException) -> str:
    """Return what a validator says of data that it refuses, without the data that it would quote."""
    module = peek(type(error), "__module__")
    if module == "pydantic_core._pydantic_core" and callable(details := peek(error, "errors")):
        return of_pydantic(details)
    return of_msgspec(error) if module == "msgspec" else ""


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the explicit causes of *error* (`raise … from`), nearest first, each once, at most ten."""
    seen = {id(error)}
    while len(seen) <= 10 and is_error(error := peek(error, "__cause__")) and id(error) not in seen:  # noqa: PLR2004
        seen.add(id(error))
        yield error


def leaves(group: BaseException) -> list[BaseException]:
    """Return the errors inside an exception group, however nested, at most 100; [] if it is no group."""
    found: list[BaseException] = []
    waiting, looked_at = deque(members_of(group)), 0
    while waiting and len(found) < _LEAVES_LIMIT and looked_at < _WALK_LIMIT:
        error, looked_at = waiting.popleft(), looked_at + 1
        members = members_of(error)
        if members:
            waiting.extendleft(reversed(members))
        else:
            found.append(error)
    return found


def members_of(error: BaseException) -> list[BaseException]:
    """Return the errors that a group holds itself; [] if it is no group."""
    if not issubclass(type(error), BaseExceptionGroup):
        return []
    members = peek(error, "exceptions")
    return [e for e in members[:_WALK_LIMIT] if is_error(e)] if type(members) is tuple else []


def _message(error: BaseException) -> str:
    said = text_of(error)
    if not _has_more(error):
        return said
    members = leaves(error)
    lines = [f"- {_line(member)}" for member in members[:_SHOWN]]
    lines += [f"- and {len(members) - _SHOWN} more"] if len(members) > _SHOWN else []
    lines += [f"caused by {_line(cause)}" for cause in islice(causes(error), _SHOWN)]
    return "\n".join((clean(said, _OWN_LIMIT), *lines)) if lines else said


def _line(error: BaseException) -> str:
    return f"{type_name(type(error))}: {clean(text_of(error), _SHOWN_LIMIT)}"


# ---------------------------------------------------------------------- where it happened


Step = tuple[str, str, str, int]  # module, function, file, line


def frames_of(error: BaseException) -> tuple[str, ...]:
    """Return "module:function" of the frames in the user's code, or of all if there are none, outermost first."""
    return _frames_in(steps_of(error))


@lru_cache(maxsize=512)  # see `_place`
def _frames_in(steps: tuple[Step, ...]) -> tuple[str, ...]:
    places = [place_of(step) for step in steps]
    theirs = [place for place in places if not place.is_ours]
    in_app = [place for place in theirs if not place.is_library]
    return tuple(place.name for place in (in_app or theirs)[-FRAMES_LIMIT:])


class CodePlace(NamedTuple):
    """A function that an error came through."""

    name: str  # "module:function"
    is_ours: bool  # redrive's own
    is_library: bool  # installed, or the standard library's


def place_of(step: Step) -> CodePlace:
    """Return which function *step* was in."""
    return _place(step[0], step[1], step[2])


@lru_cache(maxsize=2048)  # the same few lines fail a thousand times
def _place(module: str, function: str, path: str) -> CodePlace:
    installed = "site-packages" in path or "dist-packages" in path
    is_library = installed or module.partition(".")[0] in sys.stdlib_module_names
    return CodePlace(clean(f"{module}:{function}", NAME_LIMIT), _is_ours(module), is_library)


def steps_of(error: BaseException) -> tuple[Step, ...]:
    """Return the innermost steps of a traceback: a deep recursion has thousands, and only its end tells something."""
    steps: deque[Step] = deque(maxlen=4 * FRAMES_LIMIT)
    entry = peek(error, "__traceback__")
    for _ in range(_WALK_LIMIT):
        if type(entry) is not TracebackType:
            break
        frame = entry.tb_frame
        code = frame.f_code
        steps.append((_module(frame), code.co_qualname, code.co_filename, entry.tb_lineno or 0))
        entry = entry.tb_next
    return tuple(steps)


def _module(frame: FrameType) -> str:
    name = dict.get(frame.f_globals, "__name__")
    return name[:NAME_LIMIT] if type(name) is str else "?"


def _is_ours(module: str) -> bool:
    return module == "redrive" or module.startswith("redrive.")
