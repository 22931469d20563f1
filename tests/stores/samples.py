"""Letters, failures and moves for the tests of stores, and the recount of the books."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from uuid import NAMESPACE_OID, uuid5

import pytest

from redrive.core.letter import Category, Draft, Failure, Letter, Status
from redrive.core.moves import Move
from redrive.core.query import parse
from redrive.stores.contract import Claim, QueueSpec, Store, Want, books

if TYPE_CHECKING:
    from collections.abc import Sequence

QUEUE = "work"
KIND = "order.created"
WORKER = "worker-1"
LEASE = 60.0
WANT = Want(QUEUE, (KIND,), 100)
DELIVERED = Move(Status.DELIVERED, "succeeded")
OPERATOR = {"by": "ada", "reason": "fixed"}


_named: dict[str, str] = {}  # by id


def letter_id(name: str) -> str:
    """Return the same id for the same *name*."""
    found = str(uuid5(NAMESPACE_OID, name))
    _named[found] = name
    return found


def draft(name: str = "a", **fields) -> Draft:
    return Draft(**{"id": letter_id(name), "queue": QUEUE, "kind": KIND, "payload": name.encode(), **fields})


def ordered(name: str, key: str = "customer-1", **fields) -> Draft:
    return draft(name, **{"queue": "lane", "key": key, **fields})


def after(name: str, *others: str, **fields) -> Draft:
    return draft(name, after=tuple(map(letter_id, others)), **fields)


def failure(message: str = "boom", **fields) -> Failure:
    told = {"error_type": "ValueError", "message": message, "category": Category.TRANSIENT, "rule": "the default"}
    return Failure(**{**told, "fingerprint": "f1", "template": "boom <n>", **fields})


def retry(delay: float = 0.0, *, what: Failure | None = None, **fields) -> Move:
    return Move(Status.PENDING, "backing off", delay=delay, failure=what or failure(), policy="exponential", **fields)


def release(**fields) -> Move:
    return Move(Status.PENDING, "interrupted", counts=False, **fields)


def lost() -> Move:
    return Move(Status.PENDING, "worker lost", counts=False, loss=True)


def give_up(what: Failure | None = None) -> Move:
    return Move(Status.FAILED, "exhausted", failure=what or failure(), policy="exponential")


def names(letters: Sequence[Letter | Claim]) -> list[str]:
    """Return the names that the letters were drafted under: their payloads, if they come with them."""
    plain = [found.letter if isinstance(found, Claim) else found for found in letters]
    return [letter.payload.decode(errors="replace") or _named.get(letter.id, "") for letter in plain]


async def put(store: Store, *drafts: Draft | str) -> None:
    """Put new letters, given as drafts or by name."""
    receipts = await store.put([draft(each) if isinstance(each, str) else each for each in drafts])
    assert not any(receipt.duplicate for receipt in receipts)


async def claim(store: Store, limit: int = 100, queue: str = QUEUE, *, lease: float = LEASE) -> list[Claim]:
    return await store.claim([Want(queue, (KIND,), limit)], lease=lease, worker=WORKER)


async def settle_all(store: Store, move: Move, queue: str = QUEUE) -> list[str]:
    """Claim what is due, let all of it come to *move*, and return the names."""
    claims = await claim(store, queue=queue)
    assert all(await store.settle([(each, move) for each in claims]))
    return names(claims)


async def dead(store: Store, *drafts: Draft | str, what: Failure | None = None) -> None:
    """Put letters that are failed already: claimed, tried and given up."""
    await put(store, *drafts)
    assert len(await settle_all(store, give_up(what))) == len(drafts)


async def act(store: Store, verb: str, *letters: str, **fields) -> list[Letter]:
    return await store.act(verb, [letter_id(name) for name in letters], **{**OPERATOR, **fields})


async def get(store: Store, name: str) -> Letter:
    found = await store.get(letter_id(name))
    assert found is not None
    return found


async def status(store: Store, name: str) -> Status:
    return (await get(store, name)).status


async def order_lane(store: Store) -> None:
    await store.declare([QueueSpec(name="lane", ordered=True)])


async def find_all(store: Store, text: str = "", *, limit: int = 50) -> list[Letter]:
    """Return every matching letter, page by page."""
    page = await store.find(parse(text), limit=limit)
    letters = list(page.letters)
    while page.cursor is not None:
        page = await store.find(parse(text), cursor=page.cursor, limit=limit)
        letters += page.letters
    return letters


async def check_books(store: Store) -> None:
    """Check that the books balance, and that every maintained count is what a recount finds."""
    tallies = await store.tallies()
    letters = await find_all(store)
    kept = books(tallies)
    assert kept["enqueued"] == sum(kept.values()) - kept["enqueued"]
    maintained = {_traits(t): t.count for t in tallies if t.status not in ("enqueued", "purged") and t.count}
    assert maintained == Counter(_counted(letter, store.features.pending_traits) for letter in letters)
    groups = await store.groups(parse(""), limit=1_000)
    dead_letters = [letter for letter in letters if letter.status is Status.FAILED]
    assert {g.fingerprint: g.count for g in groups} == Counter(letter.fingerprint for letter in dead_letters)


def _traits(tally) -> tuple[str, ...]:
    return (
        tally.queue, tally.kind, tally.status, tally.category, tally.policy, tally.error_type, tally.fingerprint
    )  # fmt: skip


def needs(store: Store, feature: str) -> None:
    """Leave the test out, by name, on a store that does not promise *feature*."""
    if not getattr(store.features, feature):
        pytest.skip(f"{type(store).__name__} does not promise {feature}")


def _counted(letter: Letter, pending_traits: bool) -> tuple[str, ...]:
    plain = (letter.queue, letter.kind, str(letter.status))
    if letter.status is Status.PENDING and pending_traits:
        return (*plain, letter.category or "", letter.applied_policy or "", "", "")
    if letter.status is not Status.FAILED:
        return (*plain, "", "", "", "")
    told = (letter.category, letter.applied_policy, letter.error_type, letter.fingerprint)
    return (*plain, *(each or "" for each in told))
