"""
The outbox as users hold it: enqueue, and effects that happen once, in a transaction of their own.

Owns the two faces, one for connections that block and one for those that are awaited; both are
the same few steps. Knows no driver: it is handed one.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from redrive.drafts import drafts_of
from redrive.sources.outbox.statements import batches, names_of, receipts_of, refusal, statement, values_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from redrive.core.letter import Draft, Letter
    from redrive.drafts import DraftOptions
    from redrive.sources.outbox.statements import Statement
    from redrive.stores.contract import Receipt

    Enqueuing = Callable[[Sequence[Draft]], AbstractContextManager[Sequence[Draft]]]  # gives drafts with their trace

_LATE = (
    "synchronous_commit is off in a transaction that enqueues letters: its commit returns before they are on disk, and "
    "a crash of the server loses them with what else it wrote; SET LOCAL synchronous_commit = on where that matters"
)
_log = logging.getLogger("redrive.sources.outbox")


class BlockingDriver(Protocol):
    """A user's connection, of any driver; `blocks` tells it from one that is awaited."""

    blocks: bool

    def fetch(self, sql: Statement, values: Sequence[Any]) -> Sequence[Any]:
        """Run *sql* in the open transaction and return its rows; raise SourceError if none is open."""

    def block(self) -> AbstractContextManager[Any]:
        """Open a transaction, or a savepoint in the one that is open."""

    def after_commit(self, call: Callable[[], None]) -> bool:
        """See to it that *call* is called after the commit; False if this driver cannot."""


class AwaitedDriver(Protocol):
    """The same for a connection that is awaited."""

    blocks: bool

    def fetch(self, sql: Statement, values: Sequence[Any]) -> Awaitable[Sequence[Any]]:
        """Run *sql* in the open transaction and return its rows; raise SourceError if none is open."""

    def block(self) -> AbstractAsyncContextManager[Any]:
        """Open a transaction, or a savepoint in the one that is open."""

    def after_commit(self, call: Callable[[], None]) -> bool:
        """See to it that *call* is called after the commit; False if this driver cannot."""


class Destination:
    """Where letters go: a schema, how drafts are made, and how workers are woken (None: they poll)."""

    def __init__(
        self,
        schema: str,
        draft: Callable[..., Draft],
        wake: Callable[[], None] | None,
        enqueuing: Enqueuing | None = None,
    ) -> None:
        self.enqueuing: Enqueuing = enqueuing or contextlib.nullcontext
        self._accept, self._accept_many = statement(schema, "accept"), statement(schema, "accept_many")
        self.handle_once = statement(schema, "handle_once")
        self.wake, self._draft = wake, draft
        self._warned = False

    def accept(self, batch: Sequence[Draft]) -> Statement:
        """Return the statement that keeps so many drafts."""
        return self._accept if len(batch) == 1 else self._accept_many

    def receipts(self, batch: Sequence[Draft], rows: Sequence[Any]) -> list[Receipt]:
        """Return what became of each draft; warn, once, where a commit returns before it is on disk."""
        if rows and rows[0][1] == "off" and not self._warned:
            self._warned = True  # and no more: the transaction, and how it is committed, are the user's
            _log.warning(_LATE)
        return receipts_of(batch, rows)

    def draft(self, kind: str, payload: Any, options: DraftOptions) -> Draft:
        """Return the letter to be; it comes from the outbox unless it says otherwise."""
        options.setdefault("origin", "outbox")
        return self._draft(kind, payload, **options)

    def is_told_inside(self, driver: BlockingDriver | AwaitedDriver) -> bool:
        """See to it that workers are woken after the commit; True if the statement itself has to tell them."""
        return self.wake is not None and not driver.after_commit(self.wake)


class Outbox:
    """Letters in the transaction of one connection that blocks: they exist if and only if it commits."""

    def __init__(self, driver: BlockingDriver, place: Destination) -> None:
        self._driver, self._place = driver, place

    def enqueue(self, kind: str, payload: Any, **options: Unpack[DraftOptions]) -> Receipt:
        """Keep a letter in the open transaction; takes what `Redrive.enqueue` takes."""
        return self.enqueue_many([self._place.draft(kind, payload, options)])[0]

    def enqueue_many(self, drafts: Iterable[Draft]) -> list[Receipt]:
        """Keep *drafts* in the open transaction, in their order, by one statement unless they are very many."""
        notify = self._place.is_told_inside(self._driver)
        with self._place.enqueuing(drafts_of(drafts)) as made:
            return [receipt for batch in batches(made) for receipt in self._keep(batch, notify=notify)]

    def _keep(self, batch: Sequence[Draft], *, notify: bool) -> list[Receipt]:
        values = values_of(batch, notify=notify)
        try:
            return self._place.receipts(batch, self._driver.fetch(self._place.accept(batch), values))
        except Exception as error:  # every driver has its own tree of errors; what is no refusal is raised as it came
            if (refused := refusal(error)) is None:
                raise
            raise refused from None  # a driver's error may show the values that were sent


class AsyncOutbox:
    """The same for a connection that is awaited."""

    def __init__(self, driver: AwaitedDriver, place: Destination) -> None:
        self._driver, self._place = driver, place

    async def enqueue(self, kind: str, payload: Any, **options: Unpack[DraftOptions]) -> Receipt:
        """Keep a letter in the open transaction; takes what `Redrive.enqueue` takes."""
        return (await self.enqueue_many([self._place.draft(kind, payload, options)]))[0]

    async def enqueue_many(self, drafts: Iterable[Draft]) -> list[Receipt]:
        """Keep *drafts* in the open transaction, in their order, by one statement unless they are very many."""
        notify = self._place.is_told_inside(self._driver)
        with self._place.enqueuing(drafts_of(drafts)) as made:
            return [receipt for batch in batches(made) for receipt in await self._keep(batch, notify=notify)]

    async def _keep(self, batch: Sequence[Draft], *, notify: bool) -> list[Receipt]:
        values = values_of(batch, notify=notify)
        try:
            return self._place.receipts(batch, await self._driver.fetch(self._place.accept(batch), values))
        except Exception as error:  # every driver has its own tree of errors; what is no refusal is raised as it came
            if (refused := refusal(error)) is None:
                raise
            raise refused from None  # a driver's error may show the values that were sent


@contextlib.contextmanager
def once(driver: BlockingDriver, sql: Statement, letter: Letter, handler: str | None) -> Iterator[bool]:
    """Open a transaction, or a savepoint, and give whether *letter* was not handled before."""
    with driver.block():
        yield bool(driver.fetch(sql, names_of(letter, handler)))


@contextlib.asynccontextmanager
async def async_once(driver: AwaitedDriver, sql: Statement, letter: Letter, handler: str | None) -> AsyncIterator[bool]:
    """Do the same with a connection that is awaited."""
    async with driver.block():
        yield bool(await driver.fetch(sql, names_of(letter, handler)))
