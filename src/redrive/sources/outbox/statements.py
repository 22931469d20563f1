"""
One statement, in the form that each driver writes.

Owns the ways to write parameters, and what the server's answers and refusals mean. The text and the columns are the
store's own, so that a letter is the same whether a worker or a user's transaction wrote it. Knows no driver.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.errors import SourceError, StoreUnavailable
from redrive.stores.contract import Receipt
from redrive.stores.postgres import user_transactions as store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redrive.core.letter import Draft, Letter

_PARAMETER = re.compile(r"\$(\d+)")
_NO_TABLES = ("42P01", "42883", "3F000")  # SQLSTATE: no such table, function or schema
_MOST, _MOST_BYTES = 1_000, 16 << 20  # letters and bytes of payload in one statement


class Statement(NamedTuple):
    """The same text with its parameters as `$1`, as `%s`, and as `:p1`."""

    dollar: str
    percent: str
    colon: str


@lru_cache
def statement(schema: str, named: str) -> Statement:
    """Return the statement of *schema* that is called *named*."""
    text = store.statement(schema, named)
    percent = _PARAMETER.sub("%s", text.replace("%", "%%"))
    colon = _PARAMETER.sub(r":p\1", text.replace(":", "\\:"))
    return Statement(text, percent, colon)


def by_name(values: Sequence[Any]) -> dict[str, Any]:
    """Return *values* as the parameters `:p1`, `:p2` …."""
    return {f"p{n}": value for n, value in enumerate(values, start=1)}


def batches(drafts: Sequence[Draft]) -> Iterator[Sequence[Draft]]:
    """Cut *drafts* into what one statement takes: most often all of them."""
    first, size = 0, 0
    for n, draft in enumerate(drafts):
        if n > first and (n - first >= _MOST or size + len(draft.payload) > _MOST_BYTES):
            yield drafts[first:n]
            first, size = n, 0
        size += len(draft.payload)
    if drafts:
        yield drafts[first:]


def values_of(batch: Sequence[Draft], *, notify: bool) -> list[Any]:
    """Return what the statement `accept` takes for one draft, and `accept_many` for several: a list per column."""
    rows = [store.columns_of(draft) for draft in batch]
    return [*(rows[0] if len(rows) == 1 else map(list, zip(*rows, strict=True))), notify]


def receipts_of(batch: Sequence[Draft], rows: Sequence[Any]) -> list[Receipt]:
    """Return what became of each draft."""
    return [
        Receipt(draft.id) if row[0] is None else Receipt(str(row[0]), duplicate=True)
        for draft, row in zip(batch, rows, strict=True)
    ]


def names_of(letter: Letter, handler: str | None) -> list[Any]:
    """Return what the statement `handle_once` takes: the handler that has the effect, and the key of the letter."""
    return [store.held_name(handler or letter.kind), store.held_name(letter.idempotency_key or letter.id)]


def no_transaction(way_out: str) -> SourceError:
    """Return the refusal of a connection that has no transaction open."""
    return SourceError(
        f"cannot use the outbox on this connection: it has no transaction open, so what it writes would not belong to "
        f"your own writes; {way_out}"
    )


# ---------------------------------------------------------------------- refusals


def refusal(error: BaseException) -> Exception | None:
    """Return what the server refused, in our words; None if it is an error of the driver."""
    for suspect in (error, getattr(error, "orig", None), error.__cause__, getattr(error, "__context__", None)):
        state = getattr(suspect, "sqlstate", None) or getattr(suspect, "pgcode", None)
        if state is not None:
            return _meaning(str(state), _detail(suspect), suspect)
    return None


def _detail(error: Any) -> str:
    for suspect in (error, error.__cause__):
        found = getattr(suspect, "detail", None) or getattr(getattr(suspect, "diag", None), "message_detail", None)
        if isinstance(found, str):
            return found
    return ""


def _meaning(state: str, detail: str, error: Any) -> Exception | None:
    if state in _NO_TABLES:
        said = str(error).partition("\n")[0]  # further lines may quote the statement with its values
        return StoreUnavailable(
            f"cannot use the outbox in this database: {said}; run `redrive migrate` on it, with the same schema"
        )
    return store.meaning_of(state, detail)
