"""
Move letters to another store.

Owns the order of things: refuse what is not safe, then queues, handled keys and letters, oldest first, and at
the end the comparison of both stores. The source is only read. Safe to kill at any moment: what is copied is known
by its id, so that the next run goes on behind it. The stores say how each letter arrives.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from redrive.core.letter import Status
from redrive.errors import CopyRefused
from redrive.stores.contract import QueueSpec, as_broadcaster, books
from redrive.stores.copying import as_copyable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from redrive.stores.contract import QueueState, Store
    from redrive.stores.copying import Adopted, Copies, Handled, Kept

_FIRST_PAGE, _LARGEST_PAGE = 50, 500  # letters
_BYTES = 8_000_000  # payloads of a page, about
_NAMED = 100  # letters that were not copied and are named one by one
_LOOKED_BACK = 50  # audit entries


class NotCopied(msgspec.Struct, frozen=True, kw_only=True):
    """A letter of the source that the target did not take."""

    id: str
    queue: str
    kind: str
    why: str


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy came to: *letters* is the sum of *copied*, *already_there* and *not_copied*."""

    source: str
    target: str
    letters: int  # that the source has
    copied: int
    already_there: int  # by an earlier run
    not_copied: int
    named: list[NotCopied]  # the first of these
    missed: int  # letters that came into the source while it was copied
    handled_keys: int  # that are new in the target
    complete: bool  # every letter of the source is in the target
    source_books: dict[str, int]
    target_books: dict[str, int]
    notes: list[str]


class _Count:
    """The reckoning of one run."""

    def __init__(self) -> None:
        self.copied = self.already = 0
        self.refused: list[NotCopied] = []
        self.refused_count = 0
        self.elsewhere: dict[str, str] = {}  # letters that the target keeps under another id

    @property
    def letters(self) -> int:
        return self.copied + self.already + self.refused_count

    def refuse(self, kept: Kept, why: str) -> None:
        letter = kept.letter
        self.refused_count += 1
        if len(self.refused) < _NAMED:
            self.refused.append(NotCopied(id=letter.id, queue=letter.queue, kind=letter.kind, why=why))


async def copy(
    source: Store,
    target: Store,
    *,
    by: str,
    names: tuple[str, str],
    progress: Callable[[int], object] = lambda _: None,
) -> Copied:
    """
    Copy every letter of *source* to *target*, with queues, pauses and handled keys; *names* is what people call them.

    Nothing of the source changes. Raise CopyRefused if a worker runs on the source, or if both are the same.
    """
    ways = _ways(source, target)
    await refuse_running(source, names[0])
    await _refuse_same(source, target, by, names)
    notes = await _copy_queues(source, target)
    handled_keys = await _copy_handled(*ways)
    notes += await _copy_subscriptions(source, target, by)
    count = await _copy_letters(*ways, progress)
    if count.copied:
        await target.record(by, "copy", f"from {names[0]}", count.copied, "")
    return await _reckoned(source, target, names, count, handled_keys, notes)


async def letters_of(store: Store) -> int:
    """Return how many letters *store* has."""
    return _standing(books(await store.tallies()))


async def refuse_running(source: Store, name: str) -> None:
    """Raise CopyRefused if a worker runs on *source*: letters must not move while they are copied."""
    working = [beat.name for beat in await source.workers() if beat.alive]
    if working:
        raise CopyRefused(
            f"cannot copy {name}: {len(working)} of its workers are alive ({', '.join(working[:3])}); "
            "stop them, and run this again"
        )
    flying = books(await source.tallies())[Status.IN_FLIGHT]
    if flying:
        raise CopyRefused(
            f"cannot copy {name}: {flying} of its letters are in flight, and no worker of it is alive; "
            "let a worker take them back (`redrive worker --until-idle`), and run this again"
        )


# ---------------------------------------------------------------------- before the letters


def _ways(source: Store, target: Store) -> tuple[Copies, Copies]:
    giving, taking = as_copyable(source), as_copyable(target)
    if giving is None or taking is None:
        raise CopyRefused("cannot copy between these stores: one of them cannot give letters to others, or take them")
    return giving.copies, taking.copies


async def _refuse_same(source: Store, target: Store, by: str, names: tuple[str, str]) -> None:
    """Write into the target that a copy begins, and look whether the source knows: names may differ, files not."""
    mark = f"run {secrets.token_hex(8)}"
    await target.record(by, "copy begins", f"from {names[0]}", 0, mark)
    if any(entry.reason == mark for entry in await source.audit(limit=_LOOKED_BACK)):
        raise CopyRefused(f"cannot copy {names[0]} to {names[1]}: both are the same store; name another as target")


async def _copy_queues(source: Store, target: Store) -> list[str]:
    """Declare and pause the queues of the source in the target; what the target knows of them itself stays."""
    known = {state.spec.name: state for state in await target.queues()}
    notes = [await _copy_queue(target, state, known.get(state.spec.name)) for state in await source.queues()]
    return [note for note in notes if note]


async def _copy_queue(target: Store, state: QueueState, known: QueueState | None) -> str:
    spec = state.spec
    if state.paused and known is None:  # before it is declared: once it is known, its pause is the operator's there
        await target.pause(spec.name, paused=True, by=state.paused_by, reason=state.reason)
    if known is None or known.spec == QueueSpec(name=spec.name):
        await target.declare([spec])
    elif known.spec != spec:
        return f"queue {spec.name} has other settings in the target; they stay as they are there"
    return ""


async def _copy_handled(source: Copies, target: Copies) -> int:
    new, last = 0, None
    while page := await source.read_handled(last, _LARGEST_PAGE):
        new += await target.adopt_handled(page)
        last = _end(page)
    return new


def _end(page: Sequence[Handled]) -> Handled:
    return page[-1]


async def _copy_subscriptions(source: Store, target: Store, by: str) -> list[str]:
    giving, taking = as_broadcaster(source), as_broadcaster(target)
    kept = [] if giving is None else await giving.subscriptions()
    if kept and taking is None:
        return [f"{len(kept)} subscriptions stay behind: the target has none, and events wait there for a worker"]
    for subscription in kept:
        if taking is not None:
            await taking.subscribe(subscription, by=by)
    return []


# ---------------------------------------------------------------------- letters


async def _copy_letters(source: Copies, target: Copies, progress: Callable[[int], object]) -> _Count:
    count, size = _Count(), _FIRST_PAGE
    cargo = await source.read(None, size)
    while True:
        await _copy_page(target, cargo.kept, count)
        progress(count.letters)
        if cargo.cursor is None:
            return count
        size = _next_size(cargo.kept)
        cargo = await source.read(cargo.cursor, size)


async def _copy_page(target: Copies, kept: Sequence[Kept], count: _Count) -> None:
    for each in kept:
        if each.letter.status is Status.IN_FLIGHT:
            count.refuse(each, "it is in flight: a worker of the source took it while it was copied; stop that worker")
    for some in _batches([each for each in kept if each.letter.status is not Status.IN_FLIGHT]):
        coming = [_meant(each, count) for each in some]
        for each, adopted in zip(coming, await target.adopt(coming), strict=True):
            _reckon(each, adopted, count)


def _batches(kept: Sequence[Kept]) -> Iterator[list[Kept]]:
    """Cut a page where a letter waits for one before it: under which id the target keeps that must be known first."""
    batch: list[Kept] = []
    met: set[str] = set()
    for each in kept:
        if not met.isdisjoint(each.awaited):
            yield batch
            batch, met = [], set()
        batch.append(each)
        met.add(each.letter.id)
    if batch:
        yield batch


def _meant(kept: Kept, count: _Count) -> Kept:
    """Return it waiting for the letters that the target keeps under another id."""
    if not (kept.awaited and count.elsewhere):
        return kept
    return replace(kept, awaited=tuple(count.elsewhere.get(each, each) for each in kept.awaited))


def _reckon(kept: Kept, adopted: Adopted, count: _Count) -> None:
    letter = kept.letter
    if adopted.is_new:
        count.copied += 1
    elif adopted.problem:
        count.refuse(kept, adopted.problem)
    elif adopted.kept_id is not None and adopted.kept_id.lower() != letter.id.lower():
        count.elsewhere[letter.id] = adopted.kept_id
        count.refuse(kept, f"letter {adopted.kept_id} of the target has its idempotency key")
    elif letter.updated_us > adopted.updated_us:
        count.refuse(kept, "it moved in the source after it was copied; the target has it as it was before")
    else:
        count.already += 1


def _next_size(kept: Sequence[Kept]) -> int:
    """Return how many letters are read next, so that a page of large ones fits into memory."""
    average = sum(len(each.letter.payload) for each in kept) // len(kept) if kept else 0
    return max(1, min(_LARGEST_PAGE, _BYTES // max(average, 1)))


# ---------------------------------------------------------------------- the reckoning


async def _reckoned(
    source: Store, target: Store, names: tuple[str, str], count: _Count, handled_keys: int, notes: list[str]
) -> Copied:
    source_books, target_books = dict(books(await source.tallies())), dict(books(await target.tallies()))
    missed = max(0, _standing(source_books) - count.letters)
    return Copied(
        source=names[0],
        target=names[1],
        letters=count.letters,
        copied=count.copied,
        already_there=count.already,
        not_copied=count.refused_count,
        named=count.refused,
        missed=missed,
        handled_keys=handled_keys,
        complete=not missed and not count.refused_count,
        source_books=source_books,
        target_books=target_books,
        notes=notes,
    )


def _standing(found: Mapping[str, int]) -> int:
    return sum(found[status] for status in Status)
