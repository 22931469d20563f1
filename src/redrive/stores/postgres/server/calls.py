"""
Ways to ask the server.

Owns what every call shares: one transaction, the schema's statements, the clock of a test, long names, and that the
server answers a call whose answer was lost as it did the first time. Also folds the counts now and then, in the
background. Knows no operation.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from redrive.errors import RedriveError
from redrive.stores.postgres.server.connections import ISOLATION
from redrive.stores.postgres.server.long_names import Names
from redrive.stores.postgres.server.transaction import Now, Transaction, learned, new_call
from redrive.stores.postgres.texts import NONE, Whole, digests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from redrive.stores.clock import StoreClock
    from redrive.stores.postgres.server.answers import KeptAnswer
    from redrive.stores.postgres.server.connections import Server

T = TypeVar("T")

FOLD_AFTER = 500  # calls that counted something, of this process, until the counts are folded
FOLDED = 20_000  # changes folded at once


class Calls:
    """Asks one server in the terms of one schema."""

    def __init__(self, server: Server, sql: Mapping[str, str], clock: StoreClock | None) -> None:
        self._server, self._sql, self._clock = server, sql, clock
        self._names = Names()
        self._counted = 0
        self._folding: asyncio.Task[None] | None = None

    def now(self) -> Now:
        """Return what time it is for a test; otherwise the server knows."""
        return Now() if self._clock is None else Now(self._clock.wall_us(), self._clock.lease_ms() * 1_000)

    async def ask(
        self,
        work: Callable[[Any, bool], Awaitable[T]],
        *,
        noted: Whole = NONE,
        urgent: bool = False,
        within: float | None = None,
    ) -> T:
        """Ask the server; the long names that *work* writes are kept first."""
        if fresh := self._names.fresh(noted):
            whole = [noted[each] for each in fresh]
            await self._server.ask(lambda connection, _: self.fetch(connection, "keep_names", fresh, whole))
            self._names.kept(noted)
        return await self._server.ask(work, urgent=urgent, within=within)

    async def whole(self, rows: Iterable[Sequence[Any]]) -> Whole:
        """Return what the long names in *rows* stand for."""
        unknown = digests(rows)
        if not unknown:
            return NONE

        async def work(connection: Any, _again: bool) -> Whole:  # noqa: FBT001 - every work is called like this
            async with self._server.in_own_transaction(connection):
                return await learned(connection, self._sql, self._names, unknown)

        return await self._server.ask(work)

    async def fetch(self, connection: Any, statement: str, *arguments: Any) -> list[Any]:
        """Run one statement in its own transaction."""
        async with self._server.in_own_transaction(connection):
            return list(await connection.fetch(self._sql[statement], *arguments))

    async def read(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run *function* in one snapshot."""

        async def work(connection: Any, _again: bool) -> T:  # noqa: FBT001 - every work is called like this
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await function(self._transaction(connection), *arguments)

        return await self.ask(work)

    async def write(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run *function* in one transaction that may safely be run twice."""

        async def work(connection: Any, _again: bool) -> T:  # noqa: FBT001 - every work is called like this
            async with self._writing(connection) as transaction:
                return await function(transaction, *arguments)

        return await self.ask(work)

    async def once(self, answer: KeptAnswer, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run *function* in one transaction, once: *answer* keeps its result for a caller that lost it."""
        call = new_call()

        async def work(connection: Any, again: bool) -> T:  # noqa: FBT001 - every work is called like this
            async with self._writing(connection) as transaction:
                await transaction.rows("lock_call", call)
                kept = await transaction.value("answered", call) if again else None
                if kept is not None:
                    again_told: T = await answer.recall(transaction, msgspec.msgpack.decode(kept, type=answer.kind))
                    return again_told
                result = await function(transaction, *arguments)
                await transaction.rows("answer", call, msgspec.msgpack.encode(answer.keep(result)))
                return result

        return await self.ask(work)

    def _transaction(self, connection: Any) -> Transaction:
        return Transaction(connection, self._sql, self.now(), self._names)

    @contextlib.asynccontextmanager
    async def _writing(self, connection: Any) -> AsyncIterator[Transaction]:
        """Give a transaction that keeps the long names which it wrote."""
        transaction = self._transaction(connection)
        async with connection.transaction(isolation=ISOLATION):
            yield transaction
            await transaction.keep_names()
        self._names.kept(transaction.noted)

    def counted(self) -> None:
        """Note that a call counted something; fold the counts now and then, in the background."""
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
        """Wait for the folding that is under way."""
        if self._folding is not None:
            await asyncio.gather(self._folding, return_exceptions=True)
