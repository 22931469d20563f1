"""
The operator's writes: replay, archive, cancel, restore, purge, edit.

Owns carrying them out, many rows at a time, with the audit entry in the same transaction.
Which status a verb needs is defined in `core.moves`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.core.moves import check_edit, check_purge, check_verb
from redrive.errors import LetterNotFound
from redrive.stores.columns import status_of
from redrive.stores.postgres.desk import finding
from redrive.stores.postgres.putting import canonical
from redrive.stores.postgres.texts import escape, is_odd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.letter import Letter
    from redrive.stores.postgres.server.transaction import Transaction


class ActTerms(NamedTuple):
    """Who acts, and why."""

    by: str
    reason: str
    plan: str = ""
    generation: int | None = None


async def act(transaction: Transaction, verb: str, letter_ids: Sequence[str], terms: ActTerms) -> list[Letter]:
    """Act on these letters, all or none."""
    ids = list(dict.fromkeys(canonical(letter_id) for letter_id in letter_ids))
    if not ids:
        return []
    seqs_by_id = {row["id"]: row["seq"] for row in await transaction.rows("look", ids)}
    for letter_id in ids:
        if letter_id not in seqs_by_id:
            raise LetterNotFound(letter_id)
    locked = {row["id"]: row for row in await lock(transaction, list(seqs_by_id.values()))}
    for letter_id in ids:
        if letter_id not in locked:
            raise LetterNotFound(letter_id)
        check_verb(verb, letter_id, status_of(locked[letter_id]["status"]))
    seqs = [seqs_by_id[letter_id] for letter_id in ids]
    if verb == "purge":
        awaited = await awaited_of(transaction, seqs)
        for letter_id in ids:
            check_purge(letter_id, awaited.get(seqs_by_id[letter_id]))
    before = await finding.letters(transaction, seqs) if verb == "purge" else {}
    await carry_out(transaction, verb, seqs, terms)
    target = ids[0] if len(ids) == 1 else f"{len(ids)} letters"
    await transaction.audit(terms.by, verb, target, len(ids), terms.reason)
    after = before or await finding.letters(transaction, seqs)
    return [after[seq] for seq in seqs]


async def lock(transaction: Transaction, seqs: list[int]) -> list[Any]:
    """Lock the lanes of these letters, then the letters; return them as they are from now on."""
    await transaction.rows("lock_lanes", seqs)
    return await transaction.rows("lock", seqs)


async def carry_out(transaction: Transaction, verb: str, seqs: list[int], terms: ActTerms) -> None:
    """Carry out *verb* on letters that are locked and fit it."""
    odd = is_odd(terms.by + terms.reason + terms.plan)
    by, plan, now = escape(terms.by), escape(terms.plan), transaction.now.wall
    match verb:
        case "replay":
            await transaction.rows("replay", seqs, terms.generation, by, escape(terms.reason), plan, odd, now)
        case "archive" | "cancel":
            await transaction.rows("archive", seqs, by, plan, odd, now)
        case "restore":
            await transaction.rows("restore", seqs, by, plan, odd, now)
        case "purge":
            await transaction.rows("purge", seqs)


async def awaited_of(transaction: Transaction, seqs: list[int]) -> dict[int, str]:
    """Return which of these letters, which are locked, another one waits for, and that one."""
    await transaction.rows("wait_for_users")  # senders whose new letter waits for one of these
    return {row["seq"]: row["waiting"] for row in await transaction.rows("awaited_by", seqs)}


# ---------------------------------------------------------------------- edit


async def edit(
    transaction: Transaction, letter_id: str, body: tuple[bytes, str], version: int, by: str, reason: str
) -> Letter:
    """Replace the payload, compare-and-set on its version."""
    letter_id = canonical(letter_id)
    found = await transaction.row("look", [letter_id])
    if found is None:
        raise LetterNotFound(letter_id)
    locked = await transaction.row("version", found["seq"])
    if locked is None:  # it was removed in this moment
        raise LetterNotFound(letter_id)
    check_edit(letter_id, status_of(locked["status"]), locked["payload_version"], version)
    payload, content_type = body
    await transaction.rows("edit", found["seq"], payload, escape(content_type), transaction.now.wall)
    await transaction.audit(by, "edit", letter_id, 1, reason)
    return (await finding.letters(transaction, [found["seq"]]))[found["seq"]]
