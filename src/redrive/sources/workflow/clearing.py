"""
Clearing the queue.

Owns which tasks go: those that wait or are exhausted, except those that a letter outside this act waits for. Tasks that
wait only for each other go together. Knows no statistics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.core.letter import Status
from redrive.errors import LetterNotFound, MoveRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redrive.core.letter import Letter
    from redrive.stores.contract import Store

VERBS = {Status.PENDING: "cancel", Status.FAILED: "archive"}
_BATCH = 200  # letters of one act
_REASON = "clear_all"


async def clear(
    store: Store,
    found: dict[str, Status],
    by: str,
    counters: str,
    tell: Callable[[Letter], None] = lambda _letter: None,
) -> int:
    """
    Archive and purge the letters *found*, as far as no other letter waits for them; return how many.

    Each act adds the number of letters that it archives to *counters*, and *tell* is called with each of them. A letter
    that is brought back afterwards, because another one began to wait for it, stays counted.
    """
    going, archived = await _going(store, found), list[str]()
    for status, verb in VERBS.items():
        letters = await _act(store, verb, [each for each in going if found[each] is status], by, counters)
        archived += [letter.id for letter in letters]
        for letter in letters:
            tell(letter)
    purged = {letter.id for letter in await _act(store, "purge", archived, by)}
    await _act(store, "restore", sorted({*archived} - purged), by)  # a letter began to wait for them just now
    return len(purged)


async def _going(store: Store, found: Iterable[str]) -> list[str]:
    """Return those that no letter which stays waits for."""
    mine = list(found)
    pairs = await store.dependents(mine)
    stays = {awaited for awaited, waiting in pairs if waiting not in set(mine)}
    while more := {awaited for awaited, waiting in pairs if waiting in stays} - stays:
        stays |= more
    return [letter_id for letter_id in mine if letter_id not in stays]


async def _act(store: Store, verb: str, letter_ids: list[str], by: str, counters: str = "") -> list[Letter]:
    """Act on these letters; return those that it was possible for."""
    done: list[Letter] = []
    for start in range(0, len(letter_ids), _BATCH):
        batch = letter_ids[start : start + _BATCH]
        adds = (counters, {"archived": len(batch)}) if counters else None
        try:
            done += await store.act(verb, batch, by=by, reason=_REASON, adds=adds)
        except (MoveRefused, LetterNotFound):  # one of them began to run, or another person acted on it: one by one
            if len(batch) > 1:
                done += [each for one in batch for each in await _act(store, verb, [one], by, counters)]
    return done
