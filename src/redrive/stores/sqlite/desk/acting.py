"""
The operator's writes: replay, archive, cancel, restore, purge, edit.

Owns carrying them out, many rows at a time, with the audit entry in the same transaction.
Knows no rule: `core.moves` says which status a verb needs, `core.changes` what it does to a letter.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
import msgspec

from redrive.core import changes
from redrive.core.letter import Letter, Status
from redrive.core.letter.tallies import Trait, trait_of
from redrive.core.moves import check_edit, check_purge, check_verb
from redrive.errors import LetterNotFound
from redrive.stores.columns import extras_of
from redrive.stores.sqlite import ordering, rows
from redrive.stores.sqlite.desk import finding
from redrive.stores.sqlite.sql import statements
from redrive.stores.sqlite.writing import Some, Update, update_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redrive.stores.sqlite.transaction import Transaction

_OWN = ("seq", "lane", "held", "archived_from")
_COUNTED = ("id", "queue", "kind", "key", "status", "category", "applied_policy", "error_type", "fingerprint")
_CYCLE = (
    *("attempts", "losses", "last_error", "why", "first_failed_us", "failed_us", "tries", "generation", "release"),
    *("cycles", "failure_history"),
)
_LEAN = Some(_OWN, _COUNTED)  # what every verb must know of a letter
_WHOLE = Some(_OWN, (*_COUNTED, *_CYCLE))  # what a replay must know: the cycle that ends goes into the history
_EDITED = Some(("seq",), ("id", "queue", "kind", "status", "payload_version"))
_SQL = statements("acting", all=rows.ALL, lean=_LEAN.columns, edited=_EDITED.columns)
_ARCHIVE = update_of(
    ("status", "updated_us", "why", "plan"),
    also=", dead = NULL, archived_from = status, held = held - (lane = 2), lane = min(lane, 1)",
)
_RESTORE = update_of(
    ("status", "updated_us", "why", "plan"), also=", dead = nullif(archived_from = 'failed', 0), archived_from = NULL"
)
_REPLAY = update_of(
    (
        *("status", "updated_us", "why", "plan", "due_us", "cycle_us", "attempts", "losses", "cycles", "generation"),
        *("category", "error_type", "last_error", "fingerprint", "first_failed_us", "failed_us", "applied_policy"),
        *("tries", "failure_history"),
    ),
    also=", dead = NULL",
)

_AGAIN = (
    *("status", "updated_us", "why", "plan", "due_us", "cycle_us", "attempts", "losses", "cycles", "category"),
    *("error_type", "last_error", "fingerprint", "first_failed_us", "failed_us", "applied_policy", "release"),
    *("tries", "failure_history"),
)
_WAITS_AGAIN, _DEAD_AGAIN = (
    update_of(_AGAIN, also=", dead = NULL"),
    update_of(_AGAIN, also=", dead = 1, held = held - (lane = 2), lane = min(lane, 1)"),
)


class ActRow(NamedTuple):
    """A letter to act on, with the fields that the act needs, and what only the store knows of it."""

    seq: int
    lane: int
    held: int
    archived_from: str | None
    letter: Letter


class Act(NamedTuple):
    """Who acts, why, and with which token."""

    token: int
    by: str
    reason: str
    plan: str = ""
    generation: int | None = None


def needed(verb: str) -> Some:
    """Return what *verb* must know of a letter."""
    return _WHOLE if verb == "replay" else _LEAN


def row_of(some: Some, found: tuple[Any, ...]) -> ActRow:
    """Return a row that was read with the columns of *some*."""
    seq, lane, held, archived_from = found[: len(_OWN)]
    return ActRow(seq, lane, held, archived_from, some.letter(found))


def act(
    transaction: Transaction, verb: str, letter_ids: Sequence[str], by: str, reason: str, generation: int | None
) -> list[Letter]:
    """Act on these letters, all or none."""
    found = [_read(transaction, letter_id) for letter_id in dict.fromkeys(letter_ids)]
    if not found:
        return []
    for row in found:
        check_verb(verb, row.letter.id, row.letter.status)
        if verb == "purge":
            check_purge(row.letter.id, ordering.awaited_by(transaction, row.seq))
    token = transaction.next_token()
    after = CARRIED_OUT_BY[verb](transaction, found, Act(token, by, reason, generation=generation))
    target = found[0].letter.id if len(found) == 1 else f"{len(found)} letters"
    transaction.audit(by, verb, target, len(found), reason)
    return after if verb == "purge" else _as_kept(transaction, found, after, token)


def _read(transaction: Transaction, letter_id: str) -> ActRow:
    found: tuple[Any, ...] | None = transaction.sql(_SQL["read"], (letter_id,)).fetchone()
    if found is None:
        raise LetterNotFound(letter_id)
    return _whole_row(transaction, found)


def _whole_row(transaction: Transaction, found: tuple[Any, ...]) -> ActRow:
    lane, held, archived_from = found[-3:]
    return ActRow(found[0], lane, held, archived_from, rows.letter_of(transaction.connection, found[:-3]))


def by_key(transaction: Transaction, queue: str, kind: str, idempotency_key: str) -> ActRow | None:
    """Return the letter that has this idempotency key, or None."""
    found: tuple[Any, ...] | None = transaction.sql(_SQL["read_by_key"], (queue, kind, idempotency_key)).fetchone()
    return None if found is None else _whole_row(transaction, found)


def put_again(transaction: Transaction, row: ActRow, after: Letter, token: int) -> None:
    """Write what a newer failure made of the letter at *row*; one that runs keeps all but its error's text."""
    if after.status is Status.IN_FLIGHT:
        transaction.sql(_SQL["newer_error"], (after.last_error, row.seq))
        return
    _write(transaction, _DEAD_AGAIN if after.status is Status.FAILED else _WAITS_AGAIN, [row], [after], token)
    if after.cycles > row.letter.cycles:
        transaction.sql(_SQL["renew"], (after.policy, extras_of(after), row.seq))
    if row.letter.status is Status.FAILED and after.status is Status.PENDING:
        _rejoin(transaction, [row])
    elif after.status is Status.FAILED:
        _leave_lane(transaction, row)


def _as_kept(transaction: Transaction, found: Sequence[ActRow], after: Sequence[Letter], token: int) -> list[Letter]:
    """Return the letters as they are now, with how many others each waits for."""
    seqs = apsw.carray(array("q", [row.seq for row in found]))
    held = {int(seq): int(n) for seq, n in transaction.sql(_SQL["held"], (seqs,))}
    pairs = zip(found, after, strict=True)
    return [msgspec.structs.replace(letter, token=token, waits_for=held.get(row.seq, 0)) for row, letter in pairs]


# ---------------------------------------------------------------------- the verbs, many rows at a time


def _replay(transaction: Transaction, found: Sequence[ActRow], act: Act) -> list[Letter]:
    told = {"by": act.by, "reason": act.reason, "plan": act.plan, "generation": act.generation}
    after = [changes.replayed(row.letter, transaction.now_us, **told) for row in found]  # type: ignore[arg-type]
    _write(transaction, _REPLAY, found, after, act.token)
    _rejoin(transaction, found)
    return after


def _archive(transaction: Transaction, found: Sequence[ActRow], act: Act) -> list[Letter]:
    after = [changes.archived(row.letter, transaction.now_us, by=act.by, plan=act.plan) for row in found]
    _write(transaction, _ARCHIVE, found, after, act.token)
    for row in found:
        _leave_lane(transaction, row)
    return after


def _leave_lane(transaction: Transaction, row: ActRow) -> None:
    """Let the next letter of its key go, if the one at *row* was the first that waited."""
    letter = row.letter
    if row.lane == ordering.FIRST and letter.status is Status.PENDING and letter.key is not None:
        ordering.advance(transaction, letter.queue, letter.key)


def _restore(transaction: Transaction, found: Sequence[ActRow], act: Act) -> list[Letter]:
    now, told = transaction.now_us, {"by": act.by, "plan": act.plan}
    after = [changes.restored(row.letter, Status(row.archived_from or "failed"), now, **told) for row in found]
    _write(transaction, _RESTORE, found, after, act.token)
    _rejoin(transaction, [row for row in found if row.archived_from == Status.PENDING])
    return after


def _write(
    transaction: Transaction, update: Update, found: Sequence[ActRow], after: Sequence[Letter], token: int
) -> None:
    """Make each row what its letter is *after* the act, and count it."""
    pairs = list(zip(found, after, strict=True))
    transaction.connection.executemany(update.sql, [update.values(letter, token, row.seq) for row, letter in pairs])
    for row, letter in pairs:
        transaction.moved(trait_of(row.letter), trait_of(letter))


def _rejoin(transaction: Transaction, found: Sequence[ActRow]) -> None:
    """Let letters that are pending again take their places behind others of their keys."""
    if not found:
        return
    transaction.wakes = True
    ordering.come_back(transaction, [row.seq for row in found if row.held])
    keyed = [row for row in found if row.letter.key is not None and transaction.queue(row.letter.queue).ordered]
    # A letter that came to rest before its queue kept order has no lane yet.
    transaction.connection.executemany(_SQL["join_lane"], [(row.seq,) for row in keyed])
    for queue, key in {(row.letter.queue, row.letter.key) for row in keyed}:
        ordering.line_up(transaction, queue, key or "")


def _purge(transaction: Transaction, found: Sequence[ActRow], _act: Act) -> list[Letter]:
    _remove(transaction, [row.seq for row in found])
    for row in found:
        transaction.moved(trait_of(row.letter), Trait(row.letter.queue, row.letter.kind, "purged"))
    return [row.letter for row in found]


def purge(transaction: Transaction, seqs: Sequence[int]) -> None:
    """Remove the letters with these *seqs*, and count them as purged."""
    found = [row_of(_LEAN, rows.the_row(transaction.connection, _SQL["read_lean"], (seq,))) for seq in seqs]
    if found:
        _purge(transaction, found, Act(transaction.next_token(), "retention", ""))


def _remove(transaction: Transaction, seqs: Sequence[int]) -> None:
    bindings = [(seq,) for seq in seqs]
    for name in ("remove_letter", "remove_body", "remove_error_text", "remove_waits"):
        transaction.connection.executemany(_SQL[name], bindings)


CARRIED_OUT_BY: dict[str, Callable[[Transaction, Sequence[ActRow], Act], list[Letter]]] = {
    "replay": _replay,
    "archive": _archive,
    "cancel": _archive,
    "restore": _restore,
    "purge": _purge,
}


# ---------------------------------------------------------------------- edit


_EDIT = update_of(("payload", "content_type", "payload_version", "updated_us"))


def edit(
    transaction: Transaction, letter_id: str, body: tuple[bytes, str], version: int, by: str, reason: str
) -> Letter:
    """Replace the payload, compare-and-set on its version."""
    found: tuple[Any, ...] | None = transaction.sql(_SQL["read_edited"], (letter_id,)).fetchone()
    if found is None:
        raise LetterNotFound(letter_id)
    letter = _EDITED.letter(found)
    check_edit(letter_id, letter.status, letter.payload_version, version)
    _keep_body(transaction, found[0], changes.edited(letter, *body, transaction.now_us))
    transaction.audit(by, "edit", letter_id, 1, reason)
    kept = finding.get(transaction.connection, letter_id)
    assert kept is not None  # noqa: S101 - it was there a statement ago, in this transaction
    return kept


def _keep_body(transaction: Transaction, seq: int, letter: Letter) -> None:
    """Write an edited letter; a large payload goes into `bodies`."""
    large = letter.payload if len(letter.payload) > rows.LARGE else None
    row = letter if large is None else msgspec.structs.replace(letter, payload=None)
    transaction.sql(_EDIT.sql, _EDIT.values(row, transaction.next_token(), seq))
    transaction.sql(_SQL["remove_body"], (seq,))
    if large is not None:
        transaction.sql(_SQL["keep_body"], (seq, large))
