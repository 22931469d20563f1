"""
Queries as SQL.

Owns the translation: what an index can answer goes into WHERE, with parameters only; the
rest is left as terms for `Query.matches` to judge row by row. Every clause lets through at
least what its term lets through, so the two together mean exactly what the query means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redrive.core.letter import Priority, Status
from redrive.stores.compiling import COMPARE, NUMBERS, Clause, begins, joined_clauses, span, status_among

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

    from redrive.core.query import Query, Term

_TEXT = {
    "id": "id", "queue": "queue", "kind": "kind", "error": "last_error", "error_type": "error_type", "key": "key",
    "idempotency_key": "idempotency_key", "origin": "origin", "tenant": "tenant", "handler": "handler",
    "release": "release", "policy": "policy", "why": "why", "plan": "plan", "category": "category",
}  # fmt: skip
_SPANS = {"age": "created_us", "failed": "failed_us", "due": "due_us"}
_RUNNING = "seq IN (SELECT seq FROM letters INDEXED BY letters_lease WHERE status = 'in_flight')"  # they are few
_INDEXED = {Status.FAILED: "dead = 1", Status.ARCHIVED: "archived_from IS NOT NULL", Status.IN_FLIGHT: _RUNNING}
_MOST_RANGES = 100  # of one term: a long chain of OR is refused by SQLite, and no index would answer it
_SHORTEST_SEARCH = 3  # characters: the index knows trigrams


class Compiled(NamedTuple):
    """A WHERE, its parameters, the terms that must still be judged row by row, and a text to search for."""

    where: str
    bindings: tuple[object, ...]
    rest: Query
    search: str | None


def compile_query(query: Query, now_us: int, connection: apsw.Connection, *, dead: bool = False) -> Compiled:
    """Translate *query* as it stands at *now_us*; the caller may know that only *dead* letters are meant."""
    groups = connection if dead or any(_is_dead(term) for term in query.terms) else None
    found = joined_clauses(query, lambda term: _clause(term, now_us, groups))
    return Compiled(found.sql or "1", found.bindings, found.rest, _search(query))


def _search(query: Query) -> str | None:
    """Return what the search index is to be asked for: it knows the errors of dead letters only."""
    if not any(_is_dead(term) for term in query.terms):
        return None
    texts = [str(term.values[0]) for term in query.terms if _is_searched(term)]
    longest = max(texts, key=len, default="")
    return '"' + longest.replace('"', '""') + '"' if len(longest) >= _SHORTEST_SEARCH else None


def _is_searched(term: Term) -> bool:
    positive = term.field == "error" and term.op == "contains" and not term.negated
    return positive and len(term.values) == 1 and str(term.values[0]).isascii()


def _is_dead(term: Term) -> bool:
    """Say whether *term* leaves only letters whose error text is in the search index."""
    return term.field == "status" and not term.negated and set(term.values) <= {"failed"}


def _clause(term: Term, now_us: int, groups: apsw.Connection | None) -> Clause | None:
    if term.field == "status":
        return _status(term)
    if term.field == "priority":
        return _among("priority", [Priority[str(value).upper()].value for value in term.values], negated=term.negated)
    if term.field in _SPANS:
        return span(term, _SPANS, now_us)
    if term.field in NUMBERS:
        return _number(term)
    if term.field == "group":
        return _group(term, groups)
    return _text(term) if term.field in _TEXT else None


def status_clause(status: Status) -> str:
    """Return the condition for *status*, in the words of the partial index that has such letters."""
    return _INDEXED.get(status, f"status = '{status.value}'")


def _status(term: Term) -> Clause:
    if len(term.values) == 1 and not term.negated:
        return Clause(status_clause(Status(str(term.values[0]))))
    return status_among(term)


def _among(column: str, values: Sequence[object], *, negated: bool) -> Clause:
    marks = ", ".join("?" * len(values))
    if negated:
        return Clause(f"({column} IS NULL OR {column} NOT IN ({marks}))", tuple(values))
    return Clause(f"{column} IN ({marks})", tuple(values))


def _number(term: Term) -> Clause | None:
    if term.op == "eq":
        return _among(term.field, list(term.values), negated=term.negated)
    if term.negated or term.op not in COMPARE:
        return None
    return Clause(f"{term.field} {COMPARE[term.op]} ?", term.values)


def _group(term: Term, groups: apsw.Connection | None) -> Clause | None:
    """
    Ask for the one group that is meant by an equality: an index can then give its letters in order.

    *groups* has only those of letters that died, so it is asked for dead letters alone.
    """
    if term.negated or term.op == "contains":
        return None
    clause = _prefix("fingerprint", term, exact=term.op == "prefix")
    if clause is None or groups is None:
        return clause
    sql = f"SELECT fingerprint FROM groups WHERE {clause.sql} LIMIT 2"  # noqa: S608 - parameters only
    meant = groups.execute(sql, clause.bindings).fetchall()
    return Clause("fingerprint = ?", meant[0], clause.exact) if len(meant) == 1 else clause


def _text(term: Term) -> Clause | None:
    column = _TEXT[term.field]
    if term.op == "eq":
        return _among(column, list(term.values), negated=term.negated)
    if term.negated or term.op not in ("glob", "prefix"):
        return None
    if column == "id" and (ends := _id_ends(term)) is not None:
        return ends
    return _prefix(column, term, exact=False)


def _id_ends(term: Term) -> Clause | None:
    """Find ids by their ends, or whole ones, by walking the index of ids alone."""
    values = [str(value) for value in term.values]
    if term.op != "glob" or not all(value.removeprefix("*") and "*" not in value[1:] for value in values):
        return None
    tests = " OR ".join("substr(id, ?) = ?" if value.startswith("*") else "id = ?" for value in values)
    bindings = [
        part for value in values for part in ((1 - len(value), value[1:]) if value.startswith("*") else (value,))
    ]
    sql = f"seq IN (SELECT seq FROM letters INDEXED BY letters_id WHERE {tests})"  # noqa: S608 - parameters only
    return Clause(sql, tuple(bindings), exact=False)


def _prefix(column: str, term: Term, *, exact: bool) -> Clause | None:
    """Everything that starts with one of the values, up to their first `*`."""
    starts = dict.fromkeys(str(value).split("*")[0] for value in term.values)
    if not all(starts) or len(starts) > _MOST_RANGES:
        return None
    return begins(column, starts, exact=exact)
