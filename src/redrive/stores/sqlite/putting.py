"""
Letters in.

Owns admission: duplicates, full queues, unknown dependencies, and the insert itself.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.core import changes
from redrive.core.following import used_up
from redrive.core.letter import Status
from redrive.core.letter.sameness import Name, names_of
from redrive.core.letter.tallies import Trait, trait_of
from redrive.errors import LetterNotFound, QueueFull
from redrive.failpoints import hit
from redrive.stores.contract import AGAIN, Receipt
from redrive.stores.sqlite import failing, ordering, shared_state, writing
from redrive.stores.sqlite.arrivals import is_plain
from redrive.stores.sqlite.desk import acting
from redrive.stores.sqlite.sql import statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.letter import Draft, Letter
    from redrive.stores.sqlite.transaction import QueueRow, Transaction

_SQL = statements("putting")


def put(transaction: Transaction, drafts: Sequence[Draft]) -> list[Receipt]:
    """Keep *drafts*; duplicates are answered with the id that is kept."""
    transaction.wakes = True
    if not transaction.row_by_row and _are_plain(transaction, drafts):
        return transaction.arrivals.add(drafts, transaction.next_seq(len(drafts)), transaction.now_us)
    transaction.insert_arrivals()
    return _put_row_by_row(transaction, drafts)


def _are_plain(transaction: Transaction, drafts: Sequence[Draft]) -> bool:
    """Whether all can be inserted the quick way."""
    queues = transaction.queues
    for draft in drafts:
        queue = queues.get(draft.queue)
        if not is_plain(draft) or (queue is not None and not _takes(transaction, queue, draft)):
            return False
    return True


def _takes(transaction: Transaction, queue: QueueRow, draft: Draft) -> bool:
    """Whether *queue* has room for *draft*, which needs no place in a line."""
    return (draft.key is None or not queue.ordered) and transaction.has_room(queue)


def _put_row_by_row(transaction: Transaction, drafts: Sequence[Draft]) -> list[Receipt]:
    if any(draft.after for draft in drafts):
        _refuse_unknown(transaction, drafts)
    _refuse_overflow(transaction, drafts)
    token = transaction.next_token()
    kept: dict[str, str] = {}  # under which id each draft of this call is kept
    receipts = []
    for draft in drafts:
        again = _put_again(transaction, draft, token) if draft.again else None
        receipts.append(again or _keep(transaction, _meant(draft, kept), token))
        kept.setdefault(draft.id, receipts[-1].id)
    hit("put.inside")
    return receipts


def _refuse_unknown(transaction: Transaction, drafts: Sequence[Draft]) -> None:
    """Refuse to wait for what is not kept; a duplicate changes nothing, so what it would wait for may be gone."""
    met: set[str] = set()
    fresh: set[Name] = set()
    for draft in drafts:
        names = names_of(draft)
        if fresh.isdisjoint(names) and _kept_id(transaction, draft) is None:
            for letter_id in draft.after:
                if letter_id not in met and not _find(transaction, letter_id):
                    raise LetterNotFound(letter_id)
            fresh.update(names)
        met.add(draft.id)


def _find(transaction: Transaction, letter_id: str) -> tuple[int, str] | None:
    return transaction.sql(_SQL["find"], (letter_id,)).fetchone()


def _meant(draft: Draft, kept: dict[str, str]) -> Draft:
    """Return *draft* waiting for what is kept: one that it names may be a duplicate, kept under an older id."""
    return replace(draft, after=tuple(kept.get(other, other) for other in draft.after)) if draft.after else draft


def _needed(transaction: Transaction, draft: Draft) -> list[int]:
    """Return the seqs of the letters that *draft* must wait for."""
    found = (_find(transaction, letter_id) for letter_id in dict.fromkeys(draft.after))
    return [row[0] for row in found if row is not None and row[1] != Status.DELIVERED]


def _refuse_overflow(transaction: Transaction, drafts: Sequence[Draft]) -> None:
    live = [draft for draft in drafts if draft.failure is None or draft.retry]
    limited = [draft for draft in live if transaction.queue(draft.queue).max_size is not None]
    for queue, arriving in _fresh(transaction, limited).items():
        most = transaction.queue(queue).max_size or 0
        if transaction.counted(queue, Status.PENDING, Status.IN_FLIGHT) + arriving > most:
            raise QueueFull(queue, most)


def _fresh(transaction: Transaction, drafts: Sequence[Draft]) -> Counter[str]:
    """Return how many of *drafts* are no duplicates, by queue."""
    met: set[Name] = set()
    fresh: Counter[str] = Counter()
    for draft in drafts:
        if met.isdisjoint(names_of(draft)) and _kept_id(transaction, draft) is None:
            fresh[draft.queue] += 1
            met.update(names_of(draft))
    return fresh


def _kept_id(transaction: Transaction, draft: Draft) -> str | None:
    names = (draft.id, draft.queue, draft.kind, draft.idempotency_key, draft.unique_in)
    row = transaction.sql(_SQL["kept_id"], names).fetchone()
    return None if row is None else row[0]


def _put_again(transaction: Transaction, draft: Draft, token: int) -> Receipt | None:
    """Let the letter that has the key of *draft* learn of the newer failure; None if a new letter is to be kept."""
    found = acting.by_key(transaction, draft.queue, draft.kind, draft.idempotency_key or "")
    if found is None:
        return None
    if found.letter.id == draft.id:  # a spool forwards what the store has
        return Receipt(draft.id, duplicate=True)
    after = changes.put_again(found.letter, draft, transaction.now_us)
    if after is None:
        transaction.sql(_SQL["free_key"], (found.seq,))
        return None
    if not shared_state.handled(transaction, AGAIN, draft.id):  # likewise
        return Receipt(after.id, duplicate=True)
    running = after.status is Status.IN_FLIGHT  # it keeps the token of its claim
    acting.put_again(transaction, found, after, found.letter.token if running else token)
    if after.status is Status.FAILED and draft.failure is not None:
        failing.remember(transaction, [found.seq], draft.failure, again=True)
    _count(transaction, draft, after)
    return Receipt(after.id, duplicate=True)


def _keep(transaction: Transaction, draft: Draft, token: int) -> Receipt:
    letter = changes.accepted(draft, transaction.now_us)
    lane = ordering.lane_of(transaction, draft.queue, draft.key)
    if letter.status is Status.FAILED:
        lane = min(lane, ordering.FIRST)  # it waits for no other letter; a replay will line it up
    on_seqs = _needed(transaction, draft) if draft.after else []
    seq, held = transaction.next_seq(), len(on_seqs) + (lane == ordering.BEHIND)
    if not writing.insert(transaction, letter, writing.NewRow(seq, token, held, lane)):
        return Receipt(_kept_id(transaction, draft) or draft.id, duplicate=True)
    if on_seqs:
        ordering.wait_for(transaction, seq, on_seqs, draft.after_failure)
    transaction.tally(Trait(draft.queue, draft.kind, "enqueued"), 1)
    transaction.tally(trait_of(letter), 1)
    if letter.status is Status.FAILED and draft.failure is not None:
        failing.remember(transaction, [seq], draft.failure, again=False)
    _count(transaction, draft, letter)
    return Receipt(draft.id)


def _count(transaction: Transaction, draft: Draft, after: Letter) -> None:
    """Add what *draft* adds to its counters."""
    if amounts := used_up(draft, after.status, after.applied_policy):
        hit("put.before_count")
        shared_state.add_up(transaction, draft.counters, amounts)
