"""
Ways to ask the server.

Owns what every call shares: one transaction, the schema's statements, the clock of a test, long
names, and that a call whose answer was lost is answered as the first time. Also folds the counts
now and then, beside everything else. Knows no operation.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from redrive.errors import RedriveError
from redrive.stores.postgres.server import ISOLATION
from redrive.stores.postgres.texts import WHOLE, UnknownName
from redrive.stores.postgres.turn import Now, Turn, new_call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from redrive.stores.clock import StoreClock
    from redrive.stores.postgres.server import Server

T = TypeVar("T")

FOLD_AFTER = 500  # calls that counted something, of this process, until the counts are folded
FOLDED = 20_000  # changes folded at once


class Calls:
    """Asks one server in the terms of one schema."""

    def __init__(self, server: Server, sql: Mapping[str, str], clock: StoreClock | None) -> None:
        self._server, self._sql, self._clock = server, sql, clock
        self._kept_names: set[str] = set()  # long names that this schema has
        self._counted = 0
        self._folding: asyncio.Task[None] | None = None

    def now(self) -> Now:
        """Return what time it is for a test; otherwise the server knows."""
        return Now() if self._clock is None else Now(self._clock.wall_us(), self._clock.lease_ms() * 1_000)

    async def ask(
        self, work: Callable[[Any, bool], Awaitable[T]], *, urgent: bool = False, within: float | None = None
    ) -> T:
        """Ask the server; long names are kept before, and looked up when one is met for the first time."""
        await self._keep_names()
        try:
            result = await self._server.ask(work, urgent=urgent, within=within)
        except UnknownName:
            await self.learn_names()
            result = await self._server.ask(work, urgent=urgent, within=within)
        await self._keep_names()
        return result

    async def _keep_names(self) -> None:
        fresh = WHOLE.keys() - self._kept_names if WHOLE else None
        if fresh:
            kept = list(fresh)
            await self._server.ask(
                lambda connection, _: self.fetch(connection, "keep_names", kept, [WHOLE[each] for each in kept])
            )
            self._kept_names.update(kept)

    async def learn_names(self) -> None:
        """Read what long names stand for."""
        found = await self._server.ask(lambda connection, _: self.fetch(connection, "names"))
        WHOLE.update((row[0], row[1]) for row in found)
        self._kept_names.update(row[0] for row in found)

    async def fetch(self, connection: Any, statement: str, *arguments: Any) -> list[Any]:
        """Run one statement as one transaction; behind a pooler that must be said."""
        async with self._server.alone(connection):
            return list(await connection.fetch(self._sql[statement], *arguments))

    async def read(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run *function* in one snapshot."""

        async def work(connection: Any, _again: bool) -> T:  # noqa: FBT001 - every work is called like this
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await function(Turn(connection, self._sql, self.now()), *arguments)

        return await self.ask(work)

    async def write(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run *function* in one transaction that may safely be run twice."""

        async def work(connection: Any, _again: bool) -> T:  # noqa: FBT001 - every work is called like this
            async with connection.transaction(isolation=ISOLATION):
                return await function(Turn(connection, self._sql, self.now()), *arguments)

        return await self.ask(work)

    async def once(self, answer: Any, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run *function* in one transaction, once: its *answer*, of that type, is kept for whoever lost it."""
        call = new_call()

        async def work(connection: Any, again: bool) -> T:  # noqa: FBT001 - every work is called like this
            async with connection.transaction(isolation=ISOLATION):
                turn = Turn(connection, self._sql, self.now())
                await turn.rows("lock_call", call)
                kept = await turn.value("answered", call) if again else None
                if kept is not None:
                    return msgspec.msgpack.decode(kept, type=answer)  # type: ignore[no-any-return]
                result = await function(turn, *arguments)
                await turn.rows("answer", call, msgspec.msgpack.encode(result))
                return result

        return await self.ask(work)

    def counted(self) -> None:
        """Fold the counts now and then, beside everything else."""
        self._counted += 1
        if self._counted >= FOLD_AFTER and (self._folding is None or self._folding.done()):
            self._counted = 0
            self._folding = asyncio.create_task(self._fold())

    async def _fold(self) -> None:
        try:
            while await self.ask(self._fold_some) == FOLDED:
                pass
        except RedriveError:
            pass  # the next one folds more

    async def _fold_some(self, connection: Any, _again: bool) -> int:  # noqa: FBT001 - every work is called like this
        return int((await self.fetch(connection, "fold", FOLDED))[0][0])

    async def finish(self) -> None:
        """Wait for what is done beside."""
        if self._folding is not None:
            await asyncio.gather(self._folding, return_exceptions=True)
