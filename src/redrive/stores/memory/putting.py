"""
Letters in.

Owns admission: duplicates, full queues and unknown dependencies are found before anything is kept.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.core import changes
from redrive.core.following import used_up
from redrive.core.letter import Status
from redrive.core.letter.sameness import Name, names_of
from redrive.errors import LetterNotFound, QueueFull
from redrive.stores.contract import AGAIN, Receipt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.letter import Draft
    from redrive.stores.memory.transaction import Contents

_Names = dict[Name, str]  # what a draft may be a duplicate by: the id that is kept


def put(contents: Contents, drafts: Sequence[Draft]) -> list[Receipt]:
    """Keep *drafts*, all or none; duplicates are answered with the id that is kept."""
    receipts, fresh = _sort_out(contents, drafts)
    _refuse_overflow(contents, fresh)
    letters = [changes.accepted(draft, contents.now_us) for draft in fresh]
    token = contents.next_token()
    for draft, letter in zip(fresh, letters, strict=True):
        if draft.again:
            contents.table.free_key(draft.queue, draft.kind, draft.idempotency_key or "")
        contents.table.add(replace(letter, token=token), ordered=contents.queues.made(draft.queue).spec.ordered)
        if letter.status is Status.FAILED and draft.failure is not None:
            contents.table.note_failure(draft.failure, contents.now_us)
        if draft.counters:
            contents.add_up(draft.counters, used_up(draft, letter.status, letter.applied_policy))
    for draft, receipt in zip(drafts, receipts, strict=True):
        if draft.again and receipt.duplicate:
            _put_again(contents, draft, receipt.id, token)
    return receipts


def _put_again(contents: Contents, draft: Draft, kept: str, token: int) -> None:
    """Let the letter *kept* learn of the newer failure, once; one that runs keeps the token of its claim."""
    row = contents.table.row(kept)
    if row is None or kept == draft.id or not contents.note_handled(AGAIN, draft.id):
        return
    after = changes.put_again(row.letter, draft, contents.now_us)
    if after is None:
        return
    contents.table.change(row, after if after.status is Status.IN_FLIGHT else replace(after, token=token))
    if after.status is Status.FAILED and draft.failure is not None:
        contents.table.note_failure(draft.failure, contents.now_us)
        contents.add_up(draft.counters, used_up(draft, after.status, after.applied_policy))


def _sort_out(contents: Contents, drafts: Sequence[Draft]) -> tuple[list[Receipt], list[Draft]]:
    """Return the answer to each draft, and the drafts to keep."""
    arriving: _Names = {}
    meant: dict[str, str] = {}
    receipts, fresh = [], []
    for draft in drafts:
        kept = _kept_id(contents, draft, arriving)
        receipts.append(Receipt(kept or draft.id, duplicate=kept is not None))
        meant.setdefault(draft.id, kept or draft.id)
        if kept is None:
            # What it waits for may be a duplicate, kept under an older id.
            waiting = replace(draft, after=tuple(meant.get(other, other) for other in draft.after))
            _refuse_unknown(contents, waiting, arriving)
            arriving |= dict.fromkeys(names_of(draft), draft.id)
            fresh.append(waiting)
    return receipts, fresh


def _kept_id(contents: Contents, draft: Draft, arriving: _Names) -> str | None:
    kept = contents.table.kept_id(draft)
    if kept is not None and draft.again and kept != draft.id and _is_over(contents, kept):
        kept = None  # the new letter gets its key
    return kept or next((arriving[name] for name in names_of(draft) if name in arriving), None)


def _is_over(contents: Contents, kept: str) -> bool:
    row = contents.table.row(kept)
    return row is not None and row.letter.status in (Status.DELIVERED, Status.ARCHIVED)


def _refuse_unknown(contents: Contents, draft: Draft, arriving: _Names) -> None:
    for letter_id in draft.after:
        if contents.table.row(letter_id) is None and (letter_id,) not in arriving:
            raise LetterNotFound(letter_id)


def _refuse_overflow(contents: Contents, fresh: Sequence[Draft]) -> None:
    for queue, arriving in Counter(draft.queue for draft in fresh if draft.failure is None or draft.retry).items():
        most = contents.queues.of(queue).spec.max_size
        if most is not None and contents.table.live[queue] + arriving > most:
            raise QueueFull(queue, most)
