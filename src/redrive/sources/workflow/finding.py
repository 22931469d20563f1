"""
Tasks by their ids.

Owns how a task's id leads to its letter, which letters are this queue's, and which letters a task waits for. Knows no
rule of retries.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from redrive.core.letter import Status
from redrive.core.query import parse
from redrive.core.query.terms import quoted
from redrive.errors import DraftError, TaskNotFound
from redrive.sources.workflow import mapping
from redrive.sources.workflow.admission import named
from redrive.sources.workflow.mapping import KIND
from redrive.sources.workflow.types import DeadLetterStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from redrive.core.letter import Letter
    from redrive.stores.contract import Store

OVER = (Status.DELIVERED, Status.ARCHIVED)
_PAGE = 500
_LONGEST_CHAIN = 1_000  # tasks that are looked at for a cycle of dependencies
_KEPT_AS = {
    DeadLetterStatus.PENDING: "pending,failed",
    DeadLetterStatus.RETRYING: "in_flight",
    DeadLetterStatus.EXHAUSTED: "failed",
    DeadLetterStatus.COMPLETED: "delivered",
    DeadLetterStatus.ARCHIVED: "archived",
}


class Tasks:
    """The letters of one queue; *opened* gives its store."""

    def __init__(self, opened: Callable[[], Awaitable[Store]], queue: str) -> None:
        self._opened, self._mine = opened, f"queue:{quoted(queue)} kind:{KIND}"

    async def matching(self, query: str) -> AsyncIterator[Letter]:
        """Yield the letters that match, newest first, without payloads."""
        store, cursor, parsed = await self._opened(), None, parse(f"{self._mine} {query}")
        while True:
            page = await store.find(parsed, cursor=cursor, limit=_PAGE, payloads=False)
            for letter in page.letters:
                yield letter
            if page.cursor is None:
                return
            cursor = page.cursor

    async def oldest(self, statuses: tuple[DeadLetterStatus, ...], limit: int | None) -> list[Letter]:
        """Return the letters whose tasks have these statuses, oldest first."""
        store, found = await self._opened(), deque[str](maxlen=limit)
        kept_as = dict.fromkeys(word for each in statuses for word in _KEPT_AS[each].split(","))
        async for letter in self.matching(f"status:{','.join(kept_as)}"):
            if mapping.status_of(letter) in statuses:
                found.append(letter.id)
        letters = [await store.get(letter_id) for letter_id in reversed(found)]
        return [letter for letter in letters if letter is not None]

    async def running(self) -> list[Letter]:
        """Return the letters that run now; there are as many as callbacks run at once, in all processes."""
        store = await self._opened()
        return (await store.find(parse(f"{self._mine} status:in_flight"), limit=_PAGE, payloads=False)).letters

    async def newest(self, task_id: str) -> Letter | None:
        """Return the newest letter of that id, also one that is over; None if there is none."""
        store = await self._opened()
        for field in ("idempotency_key", "key"):  # the newest has the key; the second look is for copies without one
            page = await store.find(parse(f"{self._mine} {field}:{quoted(named(task_id))}"), limit=1)
            if page.letters:
                return page.letters[0]
        return None

    async def known(self, task_id: str) -> Letter:
        """Return the newest letter of that id; raise TaskNotFound."""
        letter = await self.newest(task_id)
        if letter is None:
            raise TaskNotFound(task_id)
        return letter

    async def after(self, task_id: str, names: Iterable[str]) -> tuple[str, ...]:
        """Return the letters of the tasks *names*; raise TaskNotFound, or DraftError if this task cannot wait so."""
        given = [names] if isinstance(names, str) else list(names)
        if not given:
            return ()
        letters = [await self.known(name) for name in given]
        await self._refuse_circle(task_id, letters)
        found = tuple(letter.id for letter in letters)
        kept = await self.newest(task_id)
        if kept is not None and kept.status not in OVER and set(kept.after) != set(found):
            raise DraftError(f"cannot change what task {task_id!r} waits for: it is in the queue; archive it first")
        return found

    async def _refuse_circle(self, task_id: str, letters: list[Letter]) -> None:
        store, waiting, seen = await self._opened(), deque(letters), set[str]()
        while waiting and len(seen) < _LONGEST_CHAIN:
            letter = waiting.popleft()
            if letter.key == task_id and letter.status not in OVER:
                names = ", ".join(repr(each.key) for each in letters)
                raise DraftError(f"cannot let task {task_id!r} wait for {names}: one of them waits for it already")
            if letter.id not in seen:
                seen.add(letter.id)
                waiting += [each for name in letter.after if (each := await store.get(name)) is not None]
