"""
Ways to ask the file.

Owns the threads: functions that write go to the one writer, functions that read to two readers. Also owns that a
store which is not open refuses, and what SQLite's errors mean to the caller. Knows no operation.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from redrive.errors import StoreClosed, StoreUnavailable
from redrive.stores.sqlite.file.boots import boot_number
from redrive.stores.sqlite.file.connections import Connections
from redrive.stores.sqlite.file.database import explain_error
from redrive.stores.sqlite.file.writer import Writer
from redrive.stores.sqlite.transaction import BOOT_SHIFT

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.stores.clock import StoreClock
    from redrive.stores.sqlite.file.database import File

T = TypeVar("T")


class FileCalls:
    """Runs functions of one file; *ring* is called after each commit of this process that others may wait for."""

    def __init__(self, file: File, clock: StoreClock, ring: Callable[[], None]) -> None:
        self._path, self._clock, self._ring = file.path, clock, ring
        self.connections = Connections(file, boot_number)
        self.writer: Writer | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._heard = 0

    @property
    def is_open(self) -> bool:
        """Whether it was opened and not closed since."""
        return self.writer is not None

    def open(self) -> None:
        """Open the file, make or update its schema, start the threads."""
        try:
            self.connections.open()
        except apsw.Error as error:
            raise explain_error(error, self._path) from error
        self._heard = self.connections.version()
        self.writer = Writer(self._path, self.connections, self._clock, self._ring)
        self._readers = ThreadPoolExecutor(2, "redrive-reader")

    async def close(self) -> bool:
        """Finish what was accepted, then close; return whether there was something to close."""
        writer, self.writer = self.writer, None
        readers, self._readers = self._readers, None
        if writer is None or readers is None:
            return False
        await asyncio.to_thread(readers.shutdown)
        await writer.close()
        return True

    def write(self, function: Callable[..., T], *arguments: Any, urgent: bool = False) -> asyncio.Future[T]:
        """Let the writer call *function* in its next transaction; the future has the result after the commit."""
        if self.writer is None:
            raise StoreClosed(_not_open(self._path))
        return self.writer.submit(function, *arguments, urgent=urgent)

    async def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """Let a reader call *function* in a read transaction of its own."""
        if self._readers is None:
            raise StoreClosed(_not_open(self._path))
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read_now, function, arguments)

    def _read_now(self, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        try:
            return self.connections.read(lambda connection: function(connection, *arguments))
        except apsw.Error as error:
            raise explain_error(error, self._path) from error
        except StoreUnavailable:
            if self.writer is not None:
                self.writer.look()
            raise

    def lease_now(self) -> int:
        """Return the time of leases, which is the machine's since its boot."""
        return (self.connections.boot << BOOT_SHIFT) + self._clock.lease_ms()

    def was_written(self) -> bool:
        """Whether any process committed since the last call; costs microseconds."""
        if self.writer is None:
            raise StoreClosed(_not_open(self._path))
        try:
            before, self._heard = self._heard, self.connections.version()
        except apsw.Error as error:
            raise explain_error(error, self._path) from error
        return before != self._heard


def _not_open(path: str) -> str:
    return f"the store on {path!r} is not open; call open() first, and nothing after close()"
