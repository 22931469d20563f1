"""
Queries as SQL.

Owns the translation: what an index can answer goes into WHERE, with parameters only; the
rest is left as terms for `Query.matches` to judge row by row. Every clause lets through at
least what its term lets through, so the two together mean exactly what the query means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redrive.core.letter import Priority, Status
from redrive.core.query import Query, Term

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LAST_CHARACTER = "\U0010ffff"
_TEXT = {
    "id": "id", "queue": "queue", "kind": "kind", "error": "last_error", "error_type": "error_type", "key": "key",
    "idempotency_key": "idempotency_key", "origin": "origin", "tenant": "tenant", "handler": "handler",
    "release": "release", "policy": "policy", "why": "why", "category": "category",
}  # fmt: skip
_NUMBERS = ("attempts", "losses", "cycles", "generation")
_COMPARE = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_MIRRORED = {"gt": "<", "ge": "<=", "lt": ">", "le": ">="}
_SPANS = {"age": ("created_us", _MIRRORED, -1), "failed": ("failed_us", _MIRRORED, -1), "due": ("due_us", _COMPARE, 1)}
_SHORTEST_SEARCH = 3  # characters: the index knows trigrams


class Clause(NamedTuple):
    """A condition, its parameters, and whether it says all that its term says."""

    sql: str
    bindings: tuple[object, ...] = ()
    exact: bool = True


class Compiled(NamedTuple):
    """A WHERE, its parameters, and the terms that must still be judged row by row."""

    where: str
    bindings: tuple[object, ...]
    rest: Query


def compile_query(query: Query, now_us: int) -> Compiled:
    """Translate *query* as it stands at *now_us*."""
    dead = any(_is_dead(term) for term in query.terms)
    clauses = [(term, _clause(term, now_us, dead=dead)) for term in query.terms]
    said = [clause for _, clause in clauses if clause is not None]
    rest = tuple(term for term, clause in clauses if clause is None or not clause.exact)
    where = " AND ".join(clause.sql for clause in said) or "1"
    return Compiled(where, tuple(value for clause in said for value in clause.bindings), Query(rest))


def _is_dead(term: Term) -> bool:
    """Say whether *term* leaves only letters whose error text is in the search index."""
    return term.field == "status" and not term.negated and set(term.values) <= {"failed", "archived"}


def _clause(term: Term, now_us: int, *, dead: bool) -> Clause | None:
    if term.field == "status":
        return _status(term)
    if term.field == "priority":
        return _among("priority", [Priority[str(value).upper()].value for value in term.values], negated=term.negated)
    if term.field in _SPANS:
        return _span(term, now_us)
    if term.field in _NUMBERS:
        return _number(term)
    if term.field == "group":
        return None if term.negated else _prefix("fingerprint", term, exact=True)
    return _text(term, dead=dead) if term.field in _TEXT else None


def _status(term: Term) -> Clause:
    # Literals, because a partial index is used only if its own condition stands in the text; they are our words.
    words = ", ".join(f"'{Status(str(value)).value}'" for value in term.values)
    if len(term.values) == 1 and not term.negated:
        return Clause(f"status = {words}")
    return Clause(f"status {'NOT ' * term.negated}IN ({words})")


def _among(column: str, values: Sequence[object], *, negated: bool) -> Clause:
    marks = ", ".join("?" * len(values))
    if negated:
        return Clause(f"({column} IS NULL OR {column} NOT IN ({marks}))", tuple(values))
    return Clause(f"{column} IN ({marks})", tuple(values))


def _span(term: Term, now_us: int) -> Clause | None:
    column, signs, direction = _SPANS[term.field]
    if term.negated or term.op not in signs:
        return None
    return Clause(f"{column} {signs[term.op]} ?", (now_us + direction * term.micros,))


def _number(term: Term) -> Clause | None:
    if term.op == "eq":
        return _among(term.field, list(term.values), negated=term.negated)
    if term.negated or term.op not in _COMPARE:
        return None
    return Clause(f"{term.field} {_COMPARE[term.op]} ?", term.values)


def _text(term: Term, *, dead: bool) -> Clause | None:
    column = _TEXT[term.field]
    if term.op == "eq":
        return _among(column, list(term.values), negated=term.negated)
    if term.negated:
        return None
    return _LOOSE[term.op](column, term, dead) if term.op in _LOOSE else None


def _prefix(column: str, term: Term, *, exact: bool) -> Clause | None:
    """Everything that starts with one of the values, up to their first `*`."""
    starts = [str(value).split("*")[0] for value in term.values]
    if not all(starts):
        return None
    ranges = " OR ".join(f"({column} >= ? AND {column} < ?)" for _ in starts)
    return Clause(f"({ranges})", tuple(end for start in starts for end in (start, start + _LAST_CHARACTER)), exact)


def _search(column: str, term: Term, dead: bool) -> Clause | None:  # noqa: FBT001 - one of a table of functions
    """Ask the search index; texts that it covers in part only are let through."""
    text = str(term.values[0])
    usable = dead and column == "last_error" and len(term.values) == 1 and text.isascii()
    if not usable or len(text) < _SHORTEST_SEARCH:
        return None
    sql = (
        "seq IN (SELECT rowid FROM error_text WHERE error_text MATCH ? "
        "UNION ALL SELECT seq FROM letters WHERE length(last_error) > 500)"
    )
    return Clause(sql, ('"' + text.replace('"', '""') + '"',), exact=False)


_LOOSE: dict[str, Callable[[str, Term, bool], Clause | None]] = {
    "glob": lambda column, term, _dead: _prefix(column, term, exact=False),
    "prefix": lambda column, term, _dead: _prefix(column, term, exact=False),
    "contains": _search,
}
