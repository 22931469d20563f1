"""
Letters that come from another store, or go there.

Owns reading them in the order of arrival and keeping them as they are, in any status, many rows at a
time. Knows no other store.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from redrive.core.letter import Letter, Status
from redrive.failpoints import hit
from redrive.stores import columns
from redrive.stores.columns import AFTER_FAILURE
from redrive.stores.contract import place_of
from redrive.stores.copying import Adopted, Cargo, Handled, Kept, Seen, group_of
from redrive.stores.postgres import rows
from redrive.stores.postgres.texts import escape, is_odd, is_odd_name, name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from redrive.stores.postgres.server.calls import Calls
    from redrive.stores.postgres.server.transaction import Transaction

_NO_ID = "its id is no UUID, and PostgreSQL keeps letters by nothing else"
_ARRIVING = 3  # the lane of letters that have no place in their line yet

# Texts that an index covers; all others are kept whole.
_NAMES = frozenset((
    "queue", "kind", "content_type", "key", "idempotency_key", "policy", "origin", "handler", "tenant", "error_type",
    "fingerprint",
))  # fmt: skip
_NAMED_OTHERWISE = {"kind": "event_type", "origin": "source", "handler": "target", "tenant": "workspace_id"}
_TEXTS = {field: _NAMED_OTHERWISE.get(field, field) for field in rows.TEXTS if field != "worker"}
_INSTANTS = {
    "due_us": "due_at",
    "cycle_us": "cycle_at",
    "created_us": "occurred_at",
    "updated_us": "updated_at",
    "first_failed_us": "first_failed_at",
    "failed_us": "failed_at",
}
_NUMBERS = {"attempts": "integer", "losses": "integer", "cycles": "integer", "payload_version": "integer",
            "priority": "smallint", "generation": "bigint"}  # fmt: skip


class Column(NamedTuple):
    """A column of the insert: its type as it is sent, and how the server turns that into its own."""

    column: str
    sent: str = "text"
    value: str = "{}"


_INSTANT = "timestamptz 'epoch' + {} * interval '1 microsecond'"
_COLUMNS = (
    Column("seq", "bigint"),
    Column("id", "uuid"),
    Column("held", "integer"),
    Column("lane", "smallint"),
    Column("odd", "boolean"),
    Column("queue_wide", "boolean"),
    Column("status"),
    Column("payload", "bytea"),
    Column("extras", "bytea"),
    Column("tries", "text", "{}::jsonb"),
    Column("failure_history", "text", "{}::jsonb"),
    Column("archived_from"),
    Column("deleted_at", "bigint", _INSTANT),
    *(Column(column) for column in _TEXTS.values()),
    *(Column(column, "bigint", _INSTANT) for column in _INSTANTS.values()),
    *(Column(column, sent) for column, sent in _NUMBERS.items()),
)


class PostgresCopies:
    """Copies the letters of one schema."""

    def __init__(self, calls: Calls, tell: Callable[[], object]) -> None:
        self._calls, self._tell = calls, tell

    async def read(self, cursor: str | None, limit: int) -> Cargo:
        """Return the next letters in the order of their arrival."""
        return await self._calls.read(_cargo, place_of(cursor) or 0, limit)

    async def adopt(self, letters: Sequence[Kept]) -> list[Adopted]:
        """Keep these letters as they are, in one transaction; asked again, it finds them kept."""
        hit("adopt.before")
        adopted = await self._calls.write(_adopt_all, letters)
        hit("adopt.after")
        self._calls.counted()
        self._tell()
        return adopted

    async def read_handled(self, after: Handled | None, limit: int) -> list[Handled]:
        """Return the next handled keys."""
        return await self._calls.read(_handled, after or Handled("", ""), limit)

    async def adopt_handled(self, handled: Sequence[Handled]) -> int:
        """Note handled keys with their times."""
        return await self._calls.write(_adopt_handled, handled)


# ---------------------------------------------------------------------- out


async def _cargo(transaction: Transaction, start: int, limit: int) -> Cargo:
    found = await transaction.rows("cargo", start, limit + 1)
    page = found[:limit]
    letters = [rows.letter_of(row[:-2], transaction.whole) for row in page]
    seen = await _seen(transaction, {group for letter in letters if (group := group_of(letter)) is not None})
    kept = [_kept(letter, row[-2], row[-1], seen) for letter, row in zip(letters, page, strict=True)]
    return Cargo(kept, str(page[-1][0]) if len(found) > limit and page else None)


def _kept(letter: Letter, archived_from: str | None, awaited: list[str], seen: Mapping[str, Seen]) -> Kept:
    return Kept(
        letter=letter,
        archived_from=Status(archived_from) if archived_from is not None else None,
        awaited=tuple(awaited),
        group=seen.get(group_of(letter) or ""),
    )


async def _seen(transaction: Transaction, groups: set[str]) -> dict[str, Seen]:
    asked = {name(group): group for group in groups}
    found = await transaction.rows("groups", list(asked)) if asked else []
    return {
        asked[fingerprint]: Seen(asked[fingerprint], transaction.text(error_type), transaction.text(title), first, last)
        for fingerprint, error_type, title, first, last in found
    }


async def _handled(transaction: Transaction, after: Handled, limit: int) -> list[Handled]:
    found = await transaction.rows("handled_keys", name(after.handler), name(after.key), limit)
    return [Handled(transaction.text(handler), transaction.text(key), at_us) for handler, key, at_us in found]


# ---------------------------------------------------------------------- in


async def _adopt_all(transaction: Transaction, letters: Sequence[Kept]) -> list[Adopted]:
    answers = [Adopted() if _is_id(kept.letter.id) else Adopted(problem=_NO_ID) for kept in letters]
    able = [n for n, answer in enumerate(answers) if not answer.problem]
    coming = [letters[n] for n in able]
    if not coming:
        return answers
    seqs = [row[0] for row in await transaction.rows("next_seqs", len(coming))]
    fresh = await _insert(transaction, coming, seqs)
    await _wait(transaction, [(kept, seq) for kept, seq in zip(coming, seqs, strict=True) if seq in fresh])
    await transaction.rows("adopt_counts", sorted(fresh))
    await _remember(
        transaction, [kept.group for kept, seq in zip(coming, seqs, strict=True) if kept.group and seq in fresh]
    )
    await _place(transaction, coming)
    known = await _kept_already(
        transaction, [(n, letters[n].letter) for n, seq in zip(able, seqs, strict=True) if seq not in fresh]
    )
    hit("adopt.inside")
    return [known.get(n, answer) for n, answer in enumerate(answers)]


def _is_id(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


async def _insert(transaction: Transaction, coming: Sequence[Kept], seqs: Sequence[int]) -> set[int]:
    """Insert those that are not kept; return their seqs."""
    ordered = await _ordered(transaction, coming)
    if ordered:
        lines = [_line(kept.letter) for kept in coming if _lines_up(kept.letter, ordered)]
        await transaction.rows("lock_arrivals", [queue for queue, _ in lines], [key for _, key in lines])
    told = [
        _row(transaction, kept, seq, arriving=_lines_up(kept.letter, ordered))
        for kept, seq in zip(coming, seqs, strict=True)
    ]
    found = await transaction.fetch(_insert_sql(transaction.sql["schema"]), *map(list, zip(*told, strict=True)))
    return {row[0] for row in found}


def _insert_sql(schema: str) -> str:
    names = ", ".join(each.column for each in _COLUMNS)
    values = ", ".join(each.value.format(f"u.{each.column}") for each in _COLUMNS)
    sent = ", ".join(f"${n}::{each.sent}[]" for n, each in enumerate(_COLUMNS, 1))
    return (
        f"INSERT INTO {schema}.outbox (token, {names}) "  # noqa: S608 - our own names
        f"SELECT t.token, {values} FROM (SELECT nextval('{schema}.outbox_token') AS token OFFSET 0) AS t "
        f"CROSS JOIN unnest({sent}) AS u ({names}) ORDER BY u.seq ON CONFLICT DO NOTHING RETURNING seq"
    )


async def _ordered(transaction: Transaction, coming: Sequence[Kept]) -> set[str]:
    queues = {name(kept.letter.queue) for kept in coming}
    return {transaction.text(row[0]) for row in await transaction.rows("ordered_queues", sorted(queues))}


def _lines_up(letter: Letter, ordered: set[str]) -> bool:
    return letter.status is Status.PENDING and letter.key is not None and letter.queue in ordered


def _line(letter: Letter) -> tuple[str, str]:
    return name(letter.queue), name(letter.key or "")


def _row(transaction: Transaction, kept: Kept, seq: int, *, arriving: bool) -> list[Any]:
    """Return the values of _COLUMNS for one letter."""
    letter = kept.letter
    archived = letter.status is Status.ARCHIVED
    logs = [_plain(letter.tries), _plain(letter.failure_history)]
    return [
        seq,
        letter.id,
        int(arriving),
        _ARRIVING if arriving else 0,
        _is_odd(letter, logs),
        letter.unique_in == "queue",
        str(letter.status),
        letter.payload,
        _extras(letter),
        _json(logs[0], transaction.noted) if letter.tries else None,
        _json(logs[1], transaction.noted),
        kept.archived_from,
        letter.updated_us if archived else None,
        *(_text(field, getattr(letter, field), transaction.noted) for field in _TEXTS),
        *(getattr(letter, field) for field in _INSTANTS),
        *(getattr(letter, field) for field in _NUMBERS),
    ]


def _extras(letter: Letter) -> bytes | None:
    extras = columns.Extras(**{field: getattr(letter, field) for field in columns.Extras.__struct_fields__})
    return None if extras == columns.Extras() else columns.encode(extras)


def _text(field: str, text: str | None, noted: dict[str, str]) -> str | None:
    return name(text, noted) if field in _NAMES else escape(text)


def _is_odd(letter: Letter, logs: Sequence[Any]) -> bool:
    """Whether some text of it is written with escapes, or is a long name."""
    told = [*((field, getattr(letter, field)) for field in _TEXTS), *_texts(logs)]
    return any(is_odd_name(text) if field in _NAMES else is_odd(text) for field, text in told if text)


def _plain(log: Any) -> Any:
    """Return an attempt log or a history as plain data, with instants as every other writer of PostgreSQL's writes."""
    return msgspec.to_builtins(log, builtin_types=(datetime,))


def _texts(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield field, value
        case list() | tuple():
            for each in value:
                yield from _texts(each, field)
        case dict():
            for key, each in value.items():
                yield from _texts(each, key)


def _json(log: Any, noted: dict[str, str]) -> str:
    return msgspec.json.encode(_held(log, "", noted)).decode()


def _held(value: Any, field: str, noted: dict[str, str]) -> Any:
    """Return plain data as a column of PostgreSQL's can hold it."""
    match value:
        case str():
            return _text(field, value, noted)
        case datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        case list() | tuple():
            return [_held(each, field, noted) for each in value]
        case dict():
            return {key: _held(each, key, noted) for key, each in value.items()}
    return value


async def _wait(transaction: Transaction, fresh: Sequence[tuple[Kept, int]]) -> None:
    """Let those that wait for others do so here; one that is not here has a seq that no letter ever gets."""
    waiting = [(kept, seq) for kept, seq in fresh if kept.awaited]
    if not waiting:
        return
    asked = {each for kept, _ in waiting for each in kept.awaited if _is_id(each)}
    found = {row["id"]: row for row in await transaction.rows("awaited", sorted(asked))}
    waits = [
        (-n if row is None else row["seq"], seq, AFTER_FAILURE[kept.letter.after_failure])
        for kept, seq in waiting
        for n, row in enumerate((found.get(_canonical(each)) for each in kept.awaited), 1)
        if row is None or row["status"] != Status.DELIVERED
    ]
    await transaction.rows("adopt_waits", *(map(list, zip(*waits, strict=True)) if waits else ([], [], [])))


def _canonical(text: str) -> str:
    return str(uuid.UUID(text)) if _is_id(text) else text


async def _remember(transaction: Transaction, groups: Sequence[Seen]) -> None:
    known = {name(group.fingerprint, transaction.noted): group for group in groups}
    if known:
        await transaction.rows(
            "adopt_groups",
            list(known),
            [name(group.error_type, transaction.noted) for group in known.values()],
            [escape(group.title) for group in known.values()],
            [group.first_us for group in known.values()],
            [group.last_us for group in known.values()],
        )


async def _place(transaction: Transaction, coming: Sequence[Kept]) -> None:
    """Let those of ordered queues take their places behind what is there."""
    ordered = await _ordered(transaction, coming)
    for queue in sorted(ordered):
        keys = {name(k.letter.key) for k in coming if k.letter.key is not None and k.letter.queue == queue}
        await transaction.rows("place", name(queue), sorted(keys))


async def _kept_already(transaction: Transaction, others: Sequence[tuple[int, Letter]]) -> dict[int, Adopted]:
    """Return, by number, what is kept instead of those that were not inserted."""
    if not others:
        return {}
    found = await transaction.rows(
        "kept_already",
        [letter.id for _, letter in others],
        [name(letter.queue) for _, letter in others],
        [name(letter.kind) for _, letter in others],
        [name(letter.idempotency_key) for _, letter in others],
        [letter.unique_in == "queue" for _, letter in others],
    )
    return {others[row["n"] - 1][0]: Adopted(row["id"], row["updated_us"]) for row in found}


async def _adopt_handled(transaction: Transaction, handled: Sequence[Handled]) -> int:
    names = [(transaction.name(each.handler), transaction.name(each.key), each.at_us) for each in handled]
    return len(await transaction.rows("adopt_handled", *map(list, zip(*names, strict=True)))) if names else 0
