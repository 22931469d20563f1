"""
The one thread of this process that writes, and its group commit.

Owns the write connection: all operations that wait go into one BEGIN IMMEDIATE … COMMIT, and
callers hear of it after the commit. Signs of life go first, so that a flood of puts
cannot cost a worker its leases. Operations are functions of a Transaction; of letters it knows
only that puts which follow each other share one insert.

An operation must raise RedriveError before it writes, or not at all. Anything else that
is raised rolls the whole transaction back, and its operations run again one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import apsw

from redrive.errors import RedriveError, StoreClosed, StoreError
from redrive.failpoints import hit
from redrive.stores.process import THIS
from redrive.stores.sqlite import putting
from redrive.stores.sqlite.file.database import explain_error
from redrive.stores.sqlite.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redrive.stores.clock import StoreClock
    from redrive.stores.sqlite.file.connections import Connections

MOST_OPERATIONS = 512  # in a transaction, beside what was handed over together with the last of them
_HANDED = 64  # operations handed over together
CHECKPOINT_PAGES = 4_000  # 16 MB of WAL
COURTESY = 0.0005  # seconds left to another process between two transactions


class Operation:
    """One function of a Transaction, and the future that waits for its result."""

    __slots__ = ("arguments", "error", "function", "future", "loop", "result")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self, transaction: Transaction) -> None:
        """Carry it out; what it refuses is its result."""
        self.error = None
        if self.function is not putting.put:
            transaction.insert_arrivals()
        try:
            self.result = self.function(transaction, *self.arguments)
        except RedriveError as refusal:
            self.error = refusal

    def answer(self) -> None:
        """Tell the caller, on the caller's loop."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class Writer:
    """A thread that turns waiting operations into few transactions."""

    def __init__(self, path: str, connections: Connections, clock: StoreClock, ring: Callable[[], None]) -> None:
        self._path, self._connections, self._clock, self._ring = path, connections, clock, ring
        self._handing: dict[asyncio.AbstractEventLoop, list[Operation]] = {}  # of the loop's present round
        self._waiting: SimpleQueue[list[Operation]] = SimpleQueue()
        self._urgent: deque[Operation] = deque()
        self._closing = self._over = False
        self._pid = THIS.pid
        self._under_way: list[Operation] = []
        self._version = self._seen_version = 0
        self._thread = threading.Thread(target=self._work, name="redrive-writer", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[..., Any], *arguments: Any, urgent: bool = False) -> asyncio.Future[Any]:
        """Hand in an operation; the future is answered after the commit."""
        if self._closing or self._pid != THIS.pid:
            raise StoreClosed(_closed(self._path))
        operation = Operation(function, arguments)
        if urgent:
            self._urgent.append(operation)
            self._hand_over([])
        elif (round_ := self._handing.get(operation.loop)) is not None:
            round_.append(operation)
        else:
            # One wake-up for all that a round of the loop hands in. Woken by the first of them, the thread would commit
            # it alone, and compete with the loop for the interpreter meanwhile.
            self._handing[operation.loop] = [operation]
            operation.loop.call_soon(self._end_round, operation.loop)
        return operation.future

    def _end_round(self, loop: asyncio.AbstractEventLoop) -> None:
        operations = self._handing.pop(loop, [])
        for start in range(0, len(operations), _HANDED):
            self._hand_over(operations[start : start + _HANDED])

    def _hand_over(self, operations: list[Operation]) -> None:
        self._waiting.put(operations)
        if self._over:  # it ended, on another thread's word, between our look and our put: no other thread would answer
            self._refuse_the_rest()

    async def close(self) -> None:
        """Finish what was handed in, then stop."""
        self._end_round(asyncio.get_running_loop())
        if not self._closing:
            self._closing = True
            self._waiting.put([])
        await asyncio.to_thread(self._thread.join)

    # ------------------------------------------------------------------ on the thread

    def _work(self) -> None:
        try:
            self._serve()
        finally:
            self._closing = self._over = True
            self._refuse_the_rest()
        self._connections.close()

    def _serve(self) -> None:
        while True:
            operations = self._gather()
            if operations:
                self._under_way = operations
                self._commit_all(operations)
                _answer(operations)
                self._under_way = []
                self._afterwards()
            else:
                self._look()
            if self._closing and self._waiting.empty():  # the wish to close may have come along with operations
                return

    def _refuse_the_rest(self) -> None:
        """Answer what came in too late, or what is left if this thread dies: no caller may wait for ever."""
        left = [*self._under_way, *self._urgent]
        with contextlib.suppress(Empty):
            while True:
                left += self._waiting.get_nowait()
        for operation in left:
            operation.error = StoreClosed(_closed(self._path))
        _answer(left)

    def _gather(self) -> list[Operation]:
        """Wait for an operation, then take all that wait, signs of life first."""
        found = list(self._waiting.get())
        with contextlib.suppress(Empty):
            while len(found) < MOST_OPERATIONS:
                found += self._waiting.get_nowait()
        return [self._urgent.popleft() for _ in range(len(self._urgent))] + found

    def _commit_all(self, operations: list[Operation], *, row_by_row: bool = False) -> None:
        problem = self._commit(operations, row_by_row=row_by_row)
        if problem is None:
            return
        if _is_local(problem) and not row_by_row:
            self._commit_all(operations, row_by_row=True)
            return
        if _is_local(problem) and len(operations) > 1:
            for operation in operations:  # one of them is broken: the others must not suffer
                self._commit_all([operation], row_by_row=True)
            return
        for operation in operations:
            operation.error = explain_error(problem, self._path) if isinstance(problem, apsw.Error) else problem
        self._recover(problem)

    def _commit(self, operations: Iterable[Operation], *, row_by_row: bool) -> Exception | None:
        """Run *operations* in one transaction; return what went wrong, with nothing acknowledged."""
        try:
            connection = self._connections.to_write()
            hold = self._connections.take_write_lock()
            try:
                transaction = self._transact(connection, operations, row_by_row=row_by_row)
            finally:
                hold.drop_write_lock()
            hit("sqlite.after_commit")
            self._connections.check()  # into the file that others see?
        except Exception as problem:  # noqa: BLE001 - its callers must hear of every error
            return problem
        self._version = transaction.version
        if transaction.wakes:
            self._ring()
        return None

    def _transact(
        self, connection: apsw.Connection, operations: Iterable[Operation], *, row_by_row: bool
    ) -> Transaction:
        try:
            connection.execute("BEGIN IMMEDIATE")
            hit("sqlite.after_begin")
            transaction = Transaction(connection, self._clock, self._connections.boot, row_by_row=row_by_row)
            for operation in operations:
                operation.run(transaction)
            transaction.finish()
            hit("sqlite.before_commit")
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise
        return transaction

    def _recover(self, problem: Exception) -> None:
        """Reopen the file that was lost; after an I/O error trust nothing that is cached."""
        with contextlib.suppress(apsw.Error, StoreError):  # not yet: the next transaction tries again
            if isinstance(problem, (apsw.IOError, apsw.CorruptError)):
                self._connections.check()
                self._connections.replace_writing()
        self._look()

    def _look(self) -> None:
        """See whether the file is in its place, and open the one that is there if it is not."""
        with contextlib.suppress(StoreError):  # the next caller gets the error
            try:
                self._connections.check()
            except StoreError:
                self._connections.reopen()

    def look(self) -> None:
        """Let the thread look after the file soon; any thread may call it."""
        self._waiting.put([])

    def _afterwards(self) -> None:
        """Between two transactions: keep the WAL short, and let other processes write."""
        with contextlib.suppress(apsw.Error, StoreError):  # no room, or a reader: the next transaction tries again
            if self._connections.wal_pages > CHECKPOINT_PAGES:
                hit("checkpoint.before")
                self._connections.checkpoint()
                hit("checkpoint.after")
            if self._others_wrote():
                time.sleep(COURTESY)

    def _others_wrote(self) -> bool:
        """Whether another process committed since the last transaction but one."""
        changed, self._seen_version = self._version != self._seen_version, self._version
        return changed


def _roll_back(connection: apsw.Connection) -> None:
    with contextlib.suppress(apsw.Error):  # SQLite may have rolled back by itself
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _is_local(problem: Exception) -> bool:
    """Whether one operation is to blame, not the file or the disk."""
    own = (apsw.ConstraintError, apsw.TooBigError, apsw.MismatchError)
    return not isinstance(problem, (apsw.Error, StoreError)) or isinstance(problem, own)


def _answer(operations: list[Operation]) -> None:
    """Resolve all futures with one call per loop."""
    loops: dict[asyncio.AbstractEventLoop, list[Operation]] = {}
    for operation in operations:
        loops.setdefault(operation.loop, []).append(operation)
    for loop, group in loops.items():
        with contextlib.suppress(RuntimeError):  # that loop was closed: its callers wait no more
            loop.call_soon_threadsafe(_answer_all, group)


def _answer_all(operations: list[Operation]) -> None:
    for operation in operations:
        operation.answer()


def _closed(path: str) -> str:
    return f"the store on {path!r} was closed, or opened before a fork; open a store of this process's own"
