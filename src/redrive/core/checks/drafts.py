"""
What a letter may be made of.

Owns the sentences for drafts that no store could keep as they are: wrong types, spans that never end, metadata that
no store could read back. Every draft passes these checks, so each store refuses the same drafts with the same words.
Never names a payload's or a metadata's value. Knows no store and no encoder.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from redrive.errors import DraftError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.core.letter import Draft

LONGEST_DELAY = 250_000_000_000.0  # seconds, some 7,900 years: what comes later has no date
LATEST_US = 253_402_300_799_999_999  # the last microsecond of the year 9999
EARLIEST_US = -62_135_596_800_000_000  # the first of the year 1
DEEPEST = 100  # levels of metadata: every Python reads so many
_NESTED = frozenset({dict, list, tuple})
_SHOWN = 40
_VOWELS = ("a", "e", "i", "o", "u")
_NAMES = ("id", "queue", "kind", "content_type")
_AFTER_FAILURE = ("wait", "run", "fail")
_UNIQUE_IN = ("kind", "queue")
_TEXTS = ("key", "idempotency_key", "policy", "origin", "handler", "tenant")


def check(draft: Draft) -> None:
    """Raise DraftError with everything that is wrong with *draft*."""
    problems = list(_problems(draft))
    if problems:
        raise DraftError(f"{no_letter(draft.kind)}: " + "; ".join(problems))


def _problems(draft: Draft) -> Iterator[str]:
    for name in _NAMES:
        value = getattr(draft, name)
        if type(value) is not str or not value:
            yield f"{name} is {shown(value)} and must be text"
    for name in _TEXTS:
        value = getattr(draft, name)
        if value is not None and type(value) is not str:
            yield f"{name} is {shown(value)} and must be text, such as {str(value)[:_SHOWN]!r}, or None"
    yield from _numbers(draft)
    if type(draft.payload) is not bytes:
        yield f"its payload is {type(draft.payload).__name__} and must be bytes here"
    if draft.headers or draft.metadata or draft.after:
        yield from _collected(draft)
    if draft.retry and draft.failure is None:
        yield "retry is True without a failure; give the failure that it is retried after, or leave retry out"
    if draft.after_failure not in _AFTER_FAILURE:
        yield f"after_failure is {shown(draft.after_failure)} and must be 'wait', 'run' or 'fail'"
    elif draft.after_failure != "wait" and not draft.after:
        yield f"after_failure is {draft.after_failure!r} without after; name the letters that it waits for"
    yield from _keys(draft)


def _keys(draft: Draft) -> Iterator[str]:
    if draft.unique_in not in _UNIQUE_IN:
        yield f"unique_in is {shown(draft.unique_in)} and must be 'kind' or 'queue'"
    elif draft.unique_in == "queue" and draft.idempotency_key is None:
        yield "unique_in is 'queue' without an idempotency_key; give the key, or leave unique_in out"
    elif draft.unique_in == "queue" and draft.again:
        yield "again is True and unique_in is 'queue'; such a letter is found by its kind: leave one of them out"
    if draft.again and (draft.failure is None or draft.idempotency_key is None):
        yield "again is True without a failure and an idempotency_key; give both, or leave again out"
    if draft.counters and not draft.again:
        yield "counters are named without again; leave them out, or give again"


def _numbers(draft: Draft) -> Iterator[str]:
    if draft.generation is not None and type(draft.generation) is not int:
        yield f"generation is {shown(draft.generation)} and must be a whole number, or None"
    if type(draft.priority) is int or not isinstance(draft.priority, int):
        yield f"priority is {shown(draft.priority)} and must be high, medium or low"
    if not is_span(draft.delay):
        yield (
            f"delay is {shown(draft.delay)} and must be a number of seconds from 0 to {LONGEST_DELAY:.0f}; "
            "is it in milliseconds, or a point in time? That is due_at"
        )
    if draft.due_us is not None and not (type(draft.due_us) is int and EARLIEST_US <= draft.due_us <= LATEST_US):
        yield "its due time is after the year 9999, or no time at all; is it in milliseconds?"
    accepted = draft.accepted_us
    if accepted is not None and not (type(accepted) is int and EARLIEST_US <= accepted <= LATEST_US):
        yield "accepted_us is no time in microseconds; a spool sets it, leave it out"


def _collected(draft: Draft) -> Iterator[str]:
    if type(draft.headers) is not tuple or not are_headers(draft.headers):
        yield "headers must be a tuple of pairs of str and bytes"
    if type(draft.after) is not tuple or not all(type(each) is str for each in draft.after):
        yield "after must be a tuple of ids"
    if type(draft.metadata) is not dict:
        yield f"metadata is {a_type(draft.metadata)} and must be a dict"
    elif is_deep(draft.metadata):
        yield f"metadata is nested in more than {DEEPEST} levels, or holds itself"


def is_span(value: object) -> bool:
    """Whether *value* is a number of seconds that a store can add to its clock."""
    return type(value) in (int, float) and 0 <= value <= LONGEST_DELAY  # type: ignore[operator]


def is_header(pair: object) -> bool:
    """Whether *pair* is the name and the value of a header."""
    return isinstance(pair, tuple) and len(pair) == 2 and type(pair[0]) is str and type(pair[1]) is bytes  # noqa: PLR2004


def are_headers(pairs: tuple[object, ...]) -> bool:
    """Whether all *pairs* are headers; in one loop, because sources give many of them."""
    for pair in pairs:
        if type(pair) is not tuple or len(pair) != 2 or type(pair[0]) is not str or type(pair[1]) is not bytes:  # noqa: PLR2004
            return all(map(is_header, pairs))
    return True


def is_deep(value: Any) -> bool:
    """Whether plain data is nested in more levels than every reader bears."""
    if type(value) is dict and _NESTED.isdisjoint(map(type, value.values())):
        return False  # what most metadata is
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            return True
        level = [
            inner
            for each in level
            for inner in (each.values() if type(each) is dict else each)
            if type(inner) in _NESTED
        ]
    return False


def shown(value: object) -> str:
    """Return what a sender gave for a name or a number, short; of anything else its type alone."""
    if value is None or type(value) is bool or (type(value) in (int, float) and -inf <= value <= inf):  # type: ignore[operator]
        return repr(value)[:_SHOWN]
    if isinstance(value, str):
        return repr(str.__str__(value)[:_SHOWN])
    if type(value) is float:
        return "nan"
    return a_type(value)


def a_type(value: object) -> str:
    """Return the type of *value* as sentences name it: a dict, an int, bytes."""
    name = type(value).__name__
    return name if type(value) is bytes else f"{'an' if name[:1].lower() in _VOWELS else 'a'} {name}"


def no_letter(kind: object) -> str:
    """Return how a sentence begins about a letter that cannot be made."""
    return f"cannot make a letter of kind {shown(kind)}" if isinstance(kind, str) else "cannot make a letter"
