"""
The part of compiling a query that the SQL stores share.

Owns what a clause is, how the clauses of a query become one condition, and the clauses that read the same in every
dialect: a status, a span of time, a text that begins with a prefix. Knows no table and no dialect: a store brings the
columns, and compiles the other terms itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redrive.core.letter import Status
from redrive.core.query import Query, Term

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

NUMBERS = ("attempts", "losses", "cycles", "generation")
COMPARE = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_MIRRORED = {"gt": "<", "ge": "<=", "lt": ">", "le": ">="}
SPANS = {"age": (_MIRRORED, -1), "failed": (_MIRRORED, -1), "due": (COMPARE, 1)}  # the sign, and before or after now
_LAST = "\U0010ffff"
_BEFORE_SURROGATES, _AFTER_SURROGATES = "\ud7ff", "\ue000"


class Clause(NamedTuple):
    """A condition with `?` for its parameters, and whether it says all that its term says."""

    sql: str
    bindings: tuple[object, ...] = ()
    exact: bool = True


class JoinedClauses(NamedTuple):
    """All clauses of a query in one, and the terms that must still be judged row by row."""

    sql: str  # empty if there are none
    bindings: tuple[object, ...]
    rest: Query


def joined_clauses(query: Query, clause_of: Callable[[Term], Clause | None]) -> JoinedClauses:
    """Join what *clause_of* returns for each term; None: no clause, so the term is judged row by row."""
    clauses = [(term, clause_of(term)) for term in query.terms]
    said = [clause for _, clause in clauses if clause is not None]
    rest = tuple(term for term, clause in clauses if clause is None or not clause.exact)
    bindings = tuple(value for clause in said for value in clause.bindings)
    return JoinedClauses(" AND ".join(clause.sql for clause in said), bindings, Query(rest))


def status_among(term: Term) -> Clause:
    """Compare with literals, our own words: a partial index is used only if its condition stands in the text."""
    words = ", ".join(f"'{Status(str(value)).value}'" for value in term.values)
    return Clause(f"status {'NOT ' * term.negated}IN ({words})")


def span(term: Term, columns: Mapping[str, str], now_us: int, instant: str = "?") -> Clause | None:
    """Compare an instant with now; *instant* turns the microseconds of a parameter into what the column holds."""
    signs, direction = SPANS[term.field]
    if term.negated or term.op not in signs:
        return None
    return Clause(f"{columns[term.field]} {signs[term.op]} {instant}", (now_us + direction * term.micros,))


def begins(column: str, starts: Iterable[str], *, exact: bool) -> Clause:
    """Let through what begins with one of *starts*, as ranges that an index can answer."""
    ends = [(start, end_of(start)) for start in dict.fromkeys(starts)]
    ranges = " OR ".join(f"({column} >= ?" + f" AND {column} < ?" * (end is not None) + ")" for _, end in ends)
    return Clause(f"({ranges})", tuple(bound for pair in ends for bound in pair if bound is not None), exact)


def end_of(start: str) -> str | None:
    """
    Return the first text after all that begin with *start*; None if there is none.

    Text is ordered by its characters' numbers, which is the order of its bytes in UTF-8.
    """
    kept = start.rstrip(_LAST)
    if not kept:
        return None
    last = kept[-1]
    return kept[:-1] + (_AFTER_SURROGATES if last == _BEFORE_SURROGATES else chr(ord(last) + 1))
