"""
Queries as SQL.

Owns the translation: what an index can answer goes into WHERE, with parameters only; the
rest is left as terms for `Query.matches` to judge row by row. Every clause lets through at
least what its term lets through, so the two together mean exactly what the query means.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from redrive.core.letter import Priority
from redrive.stores.compiling import COMPARE, NUMBERS, Clause, begins, joined_clauses, span, status_among
from redrive.stores.postgres.texts import escape, name

if TYPE_CHECKING:
    from redrive.core.query import Query, Term

_BEGINNING = 60  # characters of a beginning that are compared by the server
_TEXT = {
    "queue": "queue", "kind": "event_type", "error": "last_error", "error_type": "error_type", "key": "key",
    "idempotency_key": "idempotency_key", "origin": "source", "tenant": "workspace_id", "handler": "target",
    "release": "release", "policy": "policy", "why": "why", "plan": "plan", "category": "category",
}  # fmt: skip
# Those that are kept as names: a long one by its beginning and its digest. The others are kept whole.
_NAMED = frozenset(_TEXT) - {"error", "release", "why", "plan", "category"}
_IS_SHORTENED = "strpos({}, E'\\x1aL') > 0"
_SPANS = {"age": "occurred_at", "failed": "failed_at", "due": "due_at"}
_FOLDED = r"\0130\212A"  # the two characters beyond ASCII whose lower case has an ASCII letter
# Few among many: what waits or runs is found by its own partial index, not by walking the table.
_LIVE = {
    "pending": "seq = ANY (ARRAY(SELECT seq FROM {table} WHERE status = 'pending' AND held = 0 UNION ALL "
    "SELECT seq FROM {table} WHERE status = 'pending' AND held > 0))",
    "in_flight": "seq = ANY (ARRAY(SELECT seq FROM {table} WHERE status = 'in_flight'))",
}


class Compiled(NamedTuple):
    """A WHERE, its parameters from $1 on, and the terms that must still be judged row by row."""

    where: str
    bindings: tuple[object, ...]
    rest: Query
    live: str | None = None  # the one live status that is asked for


def needs_now(query: Query) -> bool:
    """Whether the meaning of *query* depends on the time."""
    return any(term.field in _SPANS for term in query.terms)


def compile_query(query: Query, schema: str, now_us: int) -> Compiled:
    """Translate *query* as it stands at *now_us*, for the quoted *schema*."""
    found = joined_clauses(query, lambda term: _clause(term, schema, now_us))
    return Compiled(numbered(found.sql or "true"), found.bindings, found.rest, _live_status(query))


def numbered(sql: str) -> str:
    """Return *sql* with $1, $2 … for each `?`."""
    first, *others = sql.split("?")
    return first + "".join(f"${n}{part}" for n, part in enumerate(others, start=1))


def few(live: str, schema: str) -> str:
    """Return a condition that finds the letters in the status *live* by their own index."""
    return _LIVE[live].format(table=f"{schema}.outbox")


def _live_status(query: Query) -> str | None:
    for term in query.terms:
        if term.field == "status" and not term.negated and len(term.values) == 1 and term.values[0] in _LIVE:
            return str(term.values[0])
    return None


def _clause(term: Term, schema: str, now_us: int) -> Clause | None:
    if term.field == "status":
        return status_among(term)
    if term.field == "priority":
        ranks = [Priority[str(value).upper()].value for value in term.values]
        return Clause(f"{'NOT ' * term.negated}priority = ANY (?::smallint[])", (ranks,))
    if term.field in _SPANS:
        return span(term, _SPANS, now_us, f"{schema}.outbox_at(?)")
    if term.field in NUMBERS:
        return _number(term)
    return _not_among(term) if term.negated else _among(term, schema)


def _among(term: Term, schema: str) -> Clause | None:
    match term.field:
        case "id":
            return _ids(term, schema)
        case "group":
            return _group(term)
        case field if field in _TEXT:
            return _text(term)
    return None


def _group(term: Term) -> Clause | None:
    """Let the server look for beginnings; only a plain one, without a wildcard, is all that is meant."""
    return None if term.op == "contains" else _prefix("fingerprint", term, exact=term.op == "prefix")


def _number(term: Term) -> Clause | None:
    if term.negated:
        return None
    if term.op == "eq":
        return Clause(f"{term.field} = ANY (?::float8[])", ([float(value) for value in term.values],), exact=False)
    if term.op not in COMPARE:
        return None
    loose = {"gt": ">=", "lt": "<="}.get(term.op, COMPARE[term.op])  # a float may round what it is compared with
    return Clause(f"{term.field} {loose} ?::float8", (float(term.values[0]),), exact=False)


def _not_among(term: Term) -> Clause | None:
    column = _TEXT.get(term.field)
    if term.op != "eq" or column is None:
        return None
    return Clause(f"({column} IS NULL OR {column} <> ALL (?::text[]))", (_held(term),))


def _held(term: Term) -> list[str]:
    """Return the values as the column holds them."""
    written = name if term.field in _NAMED else escape
    return [written(str(value)) for value in term.values]


def _ids(term: Term, schema: str) -> Clause | None:
    values = [str(value) for value in term.values]
    if term.op == "glob" and all(value.removeprefix("*") and "*" not in value[1:] for value in values):
        return _id_ends(values, schema)
    return Clause("id = ANY (?::uuid[])", (_uuids(values),), exact=False) if term.op == "eq" else None


def _id_ends(values: list[str], schema: str) -> Clause:
    """Find ids by their ends, or whole ones: the server walks the ids alone, then fetches the few."""
    tails = [value[1:] for value in values if value.startswith("*")]
    tests = " OR ".join("right(id::text, ?) = ?" for _ in tails) or "false"
    found = f"ARRAY(SELECT id FROM {schema}.outbox WHERE {tests})"  # noqa: S608 - parameters only
    whole = _uuids([value for value in values if not value.startswith("*")])
    ends = tuple(part for tail in tails for part in (len(tail), tail))
    return Clause(f"id = ANY ({found} || ?::uuid[])", (*ends, whole), exact=False)


def _uuids(values: list[str]) -> list[uuid.UUID]:
    ids = []
    for value in values:
        with suppress(ValueError):
            ids.append(uuid.UUID(value))
    return ids


def _text(term: Term) -> Clause | None:
    column = _TEXT[term.field]
    match term.op:
        case "eq":
            return Clause(f"{column} = ANY (?::text[])", (_held(term),))
        case "glob" | "prefix":
            return _prefix(column, term, exact=False)
        case "contains":
            return _search(column, term)
    return None


def _prefix(column: str, term: Term, *, exact: bool) -> Clause | None:
    """Everything that starts with one of the values, up to their first `*`."""
    whole = [escape(str(value).split("*")[0]) for value in term.values]
    starts = [start[:_BEGINNING] for start in whole]  # as much as is kept of a long name
    if not all(starts):
        return None
    return begins(column, starts, exact=exact and starts == whole)


def _search(column: str, term: Term) -> Clause | None:
    """Let the server look for plain ASCII; a text that may fold to it is let through."""
    texts = [str(value) for value in term.values]
    if not all(text.isascii() for text in texts):
        return None
    likes = " OR ".join(f"{column} ILIKE ?" for _ in texts)  # one by one: so an index of trigrams can answer them
    folded = f"{column} ~ U&'[{_FOLDED}]'"  # as in that index's companion
    if term.field in _NAMED:
        folded += f" OR {_IS_SHORTENED.format(column)}"  # most of it is not in the column
    return Clause(f"({likes} OR {folded})", tuple(f"%{_quoted(text)}%" for text in texts), exact=False)


def _quoted(text: str) -> str:
    return escape(text).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
