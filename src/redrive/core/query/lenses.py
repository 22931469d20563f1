"""
Lenses: what failed letters can be grouped by other than their fingerprint.

Owns which lenses there are (each is a field of the query language), the value that a letter has under a lens, the place
that an origin names, and the term that finds the letters of a value. Knows no store: a store that groups in SQL says
the same in its dialect, and the contract tests compare the two.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Literal, get_args

from redrive.core.query.terms import FIELDS, Term
from redrive.errors import QueryError

if TYPE_CHECKING:
    from redrive.core.letter import Letter

Lens = Literal["origin", "kind", "category", "error_type", "release", "tenant"]
LENSES: tuple[Lens, ...] = get_args(Lens)
EVENT = "event"  # the place of `event:ID`: an event's letters, one for each subscriber
_NO_TEXT = re.compile("[\0\ud800-\udfff]")  # what no query may contain
_LONGEST = 500  # characters of a value that its term repeats: a query has a bounded length


def lens_named(name: str) -> Lens:
    """Return the lens *name*; raise QueryError if there is none."""
    if name in LENSES:
        return name
    near = difflib.get_close_matches(name[:40], LENSES, n=1)
    hint = f", did you mean {near[0]!r}?" if near else ";"
    raise QueryError(f"cannot group by {name[:40]!r}{hint} there are fingerprint, {', '.join(LENSES)}")


def value_of(letter: Letter, lens: Lens) -> str | None:
    """Return what *letter* has under *lens*; None if it has nothing there."""
    value = getattr(letter, FIELDS[lens].attribute)
    if value is None:
        return None
    return place_of_origin(value) if lens == "origin" else str(value)


def place_of_origin(origin: str) -> str:
    """
    Return the place that *origin* names, without the position in it: `kafka:orders` of `kafka:orders/3@17`.

    The position begins at the first slash. One at the very beginning, and those of `://`, belong to the place.
    """
    if origin.startswith(f"{EVENT}:"):
        return EVENT
    end = origin.replace("://", ":::").find("/", 1)
    return origin if end < 0 else origin[:end]


def term_of(lens: Lens, value: str | None) -> Term:
    """Return the term that finds the letters with *value*: exactly these, or as near as a query can say."""
    if value is None:
        return Term(lens, "glob", ("*",), negated=True)
    if lens == "origin" and value:
        beginnings = (f"{value}/*", *((f"{EVENT}:*",) if value == EVENT else ()))
        return Term(lens, "glob", (_searched(value), *map(_searched, beginnings)))
    searched = _searched(value)
    return Term(lens, "eq" if searched == value else "glob", (searched,))


def _searched(text: str) -> str:
    return _NO_TEXT.sub("*", text[:_LONGEST]) + "*" * (len(text) > _LONGEST)
