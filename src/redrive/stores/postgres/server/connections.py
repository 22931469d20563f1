"""
Connections to one server, and calls that survive its hiccups.

Owns the connections, which errors mean "ask again", and the sentences for those that do not.
A call that is asked again gets `again=True`: its first try may have been committed
although its answer was lost, so the server recognises a repeated call by its number. Knows no letters.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

import asyncpg

from redrive.core.policy import RetryPolicy
from redrive.errors import RedriveError, SettingsError, StoreClosed, StoreError, StoreUnavailable
from redrive.stores.postgres.server.dsn import UNREADABLE, read_dsn
from redrive.stores.postgres.server.durability import ASKED, judge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

T = TypeVar("T")

CONNECTING = 10.0  # seconds until a connection must stand
ANSWERING = 60.0  # seconds until an answer must come; a connection may have died silently
PATIENCE = 5.0  # seconds over which a call is asked again when the server is away
FROZEN = 5.0  # seconds until the server ends a transaction whose process is silent, because its locks block all others
ISOLATION = "read_committed"  # a statement that waited for a lock reads the row again, as it is now
STARTING = 60.0  # seconds that open() waits for a server which says that it is starting
_PAUSES = RetryPolicy.exponential(0.02, 0.5, jitter="equal")  # between the tries of a call
_MOST_CONFLICTS = 30  # how often a call is asked again after a deadlock or a conflict with another call
_IS_STARTING = "57P03"
_CONFLICTS = ("40001", "40P01", "55P03")  # serialization failure, deadlock, lock timeout
# Connection lost, shutting down, cancelled from outside, too many connections or no memory, read-only, out of time.
_AWAY = ("08", "57P", "57014", "532", "533", "534", "25006", "25P03", "25P04")
# The driver says InternalClientError when a connection ends in the middle of its own questions.
_FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


class Server:
    """One database of one server, as seen by one process."""

    def __init__(self, dsn: str, *, size: int = 8, pooled: bool = False, application: str = "redrive") -> None:
        self.dsn, self.pooled, self._size, self._application = dsn, pooled, size, application
        self.closed = True
        self._idle: list[Any] = []
        self._free = asyncio.Semaphore(size)
        self._pid = os.getpid()

    async def open(self) -> None:
        """Connect once, and look whether this is a server to trust letters to."""
        self.closed, self._pid = False, os.getpid()
        self._free = asyncio.Semaphore(self._size)
        try:
            await self.ask(self._check, starting=STARTING)
        except BaseException:  # cancelled too: a server that is not opened keeps no connection
            await self.close()
            raise

    async def _check(self, connection: Any, _again: bool) -> None:  # noqa: FBT001 - every work is called like this
        async with self.in_own_transaction(connection):
            judge(await connection.fetchrow(ASKED))

    async def close(self) -> None:
        """Let go of every connection."""
        self.closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await _close(connection)

    def in_own_transaction(self, connection: Any) -> AbstractAsyncContextManager[Any]:
        """Return a transaction for one statement: without one, a pooler may send its two halves to two servers."""
        return connection.transaction(isolation=ISOLATION) if self.pooled else contextlib.nullcontext()

    async def connect(self) -> Any:
        """Return a connection of its own; the caller closes it."""
        options: dict[str, Any] = {"statement_cache_size": 0} if self.pooled else {}
        named = _named(self._application, read_dsn(self.dsn).query)
        settings = {**named, **({} if self.pooled else _settings())}
        try:
            return await asyncpg.connect(
                self.dsn, timeout=CONNECTING, command_timeout=ANSWERING, server_settings=settings, **options
            )
        except asyncpg.InterfaceError:
            raise
        except ValueError:  # it quotes a piece of the URL, of the password too
            raise SettingsError([UNREADABLE]) from None

    async def ask(
        self,
        work: Callable[[Any, bool], Awaitable[T]],
        *,
        urgent: bool = False,
        within: float | None = None,
        starting: float = 0.0,
    ) -> T:
        """
        Do *work* with a connection, as often as it takes to get an answer.

        Raise StoreUnavailable when the server is away for longer than PATIENCE, or for so many seconds
        if it has said that it is *starting*. An *urgent* call does not wait for a connection that others hold.
        What is not answered *within* so many seconds is asked once more, on a new connection.
        """
        loop = asyncio.get_running_loop()
        end, tries, again = loop.time() + PATIENCE + (within or 0.0), 0, False
        while True:
            try:
                async with asyncio.timeout(within), self._connection(urgent=urgent) as connection:
                    return await work(connection, again)
            except RedriveError:
                raise
            except _FAILURES as error:
                tries += 1
                if isinstance(error, TimeoutError):
                    self._drop_idle()  # a connection that died silently is seldom the only one
                if starting and _sqlstate(error) == _IS_STARTING:
                    end, starting = end + starting, 0.0
                over = tries > _MOST_CONFLICTS if _is_conflict(error) else loop.time() >= end
                if over or not may_pass(error):
                    raise explain(error) from None  # the server's own words may quote a row, with its payload
            again = True
            await asyncio.sleep(_PAUSES.delay(tries, random.random()))  # noqa: S311 - no secret

    async def ask_once(self, work: Callable[[Any, bool], Awaitable[T]]) -> T:
        """Do *work* whether or not the server is open."""
        if not self.closed:
            return await self.ask(work)
        await self.open()
        try:
            return await self.ask(work)
        finally:
            await self.close()

    @contextlib.asynccontextmanager
    async def _connection(self, *, urgent: bool) -> AsyncIterator[Any]:
        if self.closed or self._pid != os.getpid():
            raise StoreClosed("the store is not open in this process; call open() first, and nothing after close()")
        async with contextlib.nullcontext() if urgent else self._free:
            connection = self._take_idle() or await self.connect()
            try:
                yield connection
            except BaseException as error:  # cancelled too: a connection is given back or closed, never forgotten
                await self._give_back(connection, sound=_is_sound(error))
                raise
            await self._give_back(connection, sound=True)

    def _take_idle(self) -> Any:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    def _drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()

    async def _give_back(self, connection: Any, *, sound: bool) -> None:
        if sound and not self.closed and not connection.is_closed() and len(self._idle) < self._size:
            self._idle.append(connection)
        elif sound:
            await _close(connection)
        else:
            connection.terminate()  # it may be dead already, so do not wait for a clean close


def _settings() -> dict[str, str]:
    """Return the settings of a session; a pooler refuses them, and has settings of its own."""
    return {
        "idle_in_transaction_session_timeout": f"{round(FROZEN * 1000)}ms",
        "default_transaction_isolation": ISOLATION.replace("_", " "),
    }


def _named(application: str, query: str) -> dict[str, str]:
    """Return the name by which an administrator sees these connections; one in the URL counts instead."""
    given = "application_name" in dict(parse_qsl(query))
    return {} if given else {"application_name": application}


async def _close(connection: Any) -> None:
    with contextlib.suppress(Exception):
        await connection.close(timeout=2)


def _sqlstate(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or ""


def _is_sound(error: BaseException) -> bool:
    """Whether the connection may be used again after this error; one to a read-only server may not."""
    if isinstance(error, asyncpg.PostgresError):
        return not _sqlstate(error).startswith(_AWAY)
    return isinstance(error, RedriveError)


def _is_conflict(error: BaseException) -> bool:
    return _sqlstate(error) in _CONFLICTS


def may_pass(error: BaseException) -> bool:
    """Whether the same call may succeed if it is made again."""
    state = _sqlstate(error)
    if not state:  # not the server's own words: the connection broke, or there was no answer
        return not isinstance(error, asyncpg.InterfaceError) or "connection" in str(error)
    return _is_conflict(error) or state.startswith(_AWAY)


def explain(error: BaseException) -> StoreError:
    """Turn what went wrong into what the caller can do about it."""
    state, said = _sqlstate(error), str(error).partition("\n")[0]  # further lines may quote the row: its payload, too
    if state.startswith("22"):  # data exceptions, the driver's own too, quote the value
        said = type(error).__name__
    if state == "53100":
        return StoreUnavailable("cannot write to PostgreSQL: its disk is full; nothing was written, free some room")
    if state == "25006":
        return StoreUnavailable("cannot write to PostgreSQL: it is read-only now (a replica, or a failover under way)")
    if state in ("28000", "28P01", "3D000"):
        return StoreUnavailable(f"cannot connect to PostgreSQL: {said}; check the URL's user, password and database")
    if state in ("42P01", "42883", "3F000", "42501"):
        return StoreUnavailable(f"cannot use PostgreSQL: {said}; run `redrive migrate`, or grant this user its rights")
    if state and not may_pass(error):
        return StoreError(f"PostgreSQL refused what redrive asked ({state}: {said}); nothing was written")
    what = f"{type(error).__name__}: {said}".rstrip(": ")
    return StoreUnavailable(f"cannot reach PostgreSQL, or it gave no answer ({what}); try again later")
