"""
The operator's writes: replay, archive, cancel, restore, purge, edit.

Owns the verbs, for one letter, for some and for a plan's page, and edits. Knows no plan.
Each act and its audit entry are one step; a refusal changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.core import changes
from redrive.core.letter import Letter, Status
from redrive.core.moves import check_edit, check_purge, check_verb
from redrive.errors import LetterNotFound
from redrive.stores.memory import ordering
from redrive.stores.memory.desk import finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.stores.memory.rows import Row
    from redrive.stores.memory.transaction import Contents


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One verb, and who does it why."""

    verb: str
    by: str
    reason: str
    plan: str = ""
    generation: int | None = None


def act(contents: Contents, asked: Act, letter_ids: Sequence[str]) -> list[Letter]:
    """Do it to these letters, all or none."""
    rows = [_row(contents, letter_id) for letter_id in dict.fromkeys(letter_ids)]
    for row in rows:
        check_verb(asked.verb, row.letter.id, row.letter.status)
        if asked.verb == "purge":
            check_purge(row.letter.id, ordering.awaited_by(contents.table, row))
    if not rows:
        return []
    target = rows[0].letter.id if len(rows) == 1 else f"{len(rows)} letters"
    contents.audit(asked.by, asked.verb, target, len(rows), asked.reason)
    gone = [finding.seen(contents, row) for row in rows] if asked.verb == "purge" else []
    carry_out(contents, asked, rows)
    return gone or [finding.seen(contents, row) for row in rows]  # once all have moved: they may wait for each other


def _row(contents: Contents, letter_id: str) -> Row:
    row = contents.table.row(letter_id)
    if row is None:
        raise LetterNotFound(letter_id)
    return row


def carry_out(contents: Contents, asked: Act, rows: Sequence[Row]) -> list[Letter]:
    """Act on letters that fit the verb."""
    token = contents.next_token()
    return [_do(contents, asked, row, token) for row in rows]


def _do(contents: Contents, asked: Act, row: Row, token: int) -> Letter:
    if asked.verb == "purge":
        contents.table.remove(row)
        return row.letter
    letter = replace(_after(asked, row, contents.now_us), token=token)
    if letter.status is Status.ARCHIVED:
        row.archived_from = row.letter.status
    contents.table.change(row, letter)
    return letter


def _after(asked: Act, row: Row, now: int) -> Letter:
    match asked.verb:
        case "replay":
            return changes.replayed(
                row.letter, now, by=asked.by, reason=asked.reason, plan=asked.plan, generation=asked.generation
            )
        case "restore":
            return changes.restored(row.letter, row.archived_from, now, by=asked.by, plan=asked.plan)
        case _:
            return changes.archived(row.letter, now, by=asked.by, plan=asked.plan)


def edit(
    contents: Contents, letter_id: str, payload: bytes, content_type: str, *, version: int, by: str, reason: str
) -> Letter:
    """Replace a payload if no operator did so since *version*."""
    row = _row(contents, letter_id)
    check_edit(letter_id, row.letter.status, row.letter.payload_version, version)
    letter = replace(changes.edited(row.letter, payload, content_type, contents.now_us), token=contents.next_token())
    contents.table.change(row, letter)
    contents.audit(by, "edit", letter_id, 1, reason)
    return finding.seen(contents, row)
