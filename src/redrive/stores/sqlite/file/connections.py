"""
The connections of one store to one file: one that writes, some that read, one that listens.

Owns when they are opened and closed, which is all together: once the file, its `-wal` or its `-shm`
was removed or replaced, none of them may be used, and while one of them is left SQLite would go on
with what the others had in memory. Knows no letters.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, TypeVar

import apsw

from redrive.errors import StoreError, StoreUnavailable
from redrive.failpoints import hit
from redrive.stores.sqlite.file.database import ask_again, explain_error, migrate
from redrive.stores.sqlite.file.identity import FileLost, OpenedFiles, missing
from redrive.stores.sqlite.file.locks import FileHold
from redrive.stores.sqlite.file.stranger_wal import refuse_stale_index, refuse_stranger

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.stores.sqlite.file.database import File

T = TypeVar("T")


class Connections:
    """Everything that this store has open on its file."""

    def __init__(self, file: File, prepare: Callable[[apsw.Connection], int]) -> None:
        self._file, self._prepare = file, prepare
        self.boot = 0  # this boot's number in the file
        self.wal_pages = 0
        self._lock = threading.Lock()
        self._idle: list[apsw.Connection] = []  # those that read, between two reads
        self._times = 0  # how often the file was opened
        self._writing: apsw.Connection | None = None
        self._watch: apsw.Connection | None = None  # asks whether another process has written
        self._hold: FileHold | None = None
        self._place: OpenedFiles | None = None
        self._why: StoreError = FileLost(missing(file.path))  # why nothing is open
        self._version = 0

    # ------------------------------------------------------------------ opening and closing

    def open(self, *, create: bool = True) -> None:
        """Open the file, make or update its schema, hold it, connect."""
        self._hold = self._take(create=create)
        try:
            self._refuse_others_leavings(self._hold, running=not create)
            self._make_ready()
            self._connect(self._hold)
        except BaseException:
            self._close_all()
            raise

    def _refuse_others_leavings(self, hold: FileHold, *, running: bool) -> None:
        if running and not os.fstat(hold.descriptor).st_size:  # a copy begins with nothing
            raise FileLost(missing(self._file.path))
        real = os.path.realpath(self._file.path)
        refuse_stranger(hold.descriptor, f"{real}-wal", self._file.path, running=running)
        if hold.is_first:  # looking at it would drop the locks of another store of this process
            refuse_stale_index(f"{real}-shm", f"{real}-wal", self._file.path)

    def _take(self, *, create: bool) -> FileHold:
        try:
            return FileHold.of(self._file.path, create=create)
        except OSError as error:
            if not create:
                raise FileLost(missing(self._file.path)) from error
            raise apsw.CantOpenError(str(error)) from error

    def _make_ready(self) -> None:
        """Bring the file into its newest form, by a connection that is closed before the file is guarded."""
        with contextlib.closing(self._file.writer()) as connection, contextlib.ExitStack() as locked:
            locked.callback(self.take_write_lock().drop_write_lock)
            hit("open.before_migrate")
            migrate(connection, self._file.path)
            hit("open.after_migrate")
            self.boot = self._prepare(connection)

    def _connect(self, hold: FileHold) -> None:
        if not hold.guard(ask_again):
            raise apsw.BusyError
        self._writing, self._watch = self._connect_writing(), self._file.reader()
        self._watch.execute("SELECT count(*) FROM meta").fetchall()  # from here on there are a -wal and a -shm
        self._place = OpenedFiles(self._file.path)
        hold.guard_shm(self._place.shm)

    def _connect_writing(self) -> apsw.Connection:
        connection = self._file.writer()
        connection.set_wal_hook(self._note_pages)
        return connection

    def _note_pages(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self.wal_pages = pages
        return apsw.SQLITE_OK

    def close(self) -> None:
        """Close all; the last one of all processes brings the WAL into the file and removes it."""
        with self._lock:
            if self._writing is not None and self._is_lost():
                _leave_as_it_is(self._writing)
            self._close_all()

    def _close_all(self) -> None:
        """Close what is open; a reader closes its own connection afterwards."""
        self._times += 1
        for connection in (*self._idle, self._watch):
            _close(connection)
        if self._hold is not None:
            self._hold.unguard()
            _close(self._writing)
            self._hold.close()
        self._idle.clear()
        self._writing = self._watch = self._hold = self._place = None

    # ------------------------------------------------------------------ is it still there

    def check(self) -> None:
        """Raise StoreUnavailable unless what was opened is still in its place."""
        place = self._place
        if place is None:
            raise self._closed()
        place.check()

    def _is_lost(self) -> bool:
        try:
            self.check()
        except StoreError:
            return True
        return False

    def _closed(self) -> StoreError:
        return type(self._why)(str(self._why))  # each caller gets an exception of its own

    def reopen(self) -> None:
        """Leave the file that is lost, and open the one at the path; raises StoreError if that cannot be now."""
        with self._lock:
            try:
                self._reopen()
            except apsw.Error as error:
                self._why = explain_error(error, self._file.path)
                raise self._why from error
            except StoreError as error:
                self._why = error
                raise

    def _reopen(self) -> None:
        if self._hold is not None and self._place is not None:
            self._rescue(self._hold, self._place)
            self._hold.lost = True
            self._close_all()
        if self._lingers():
            raise StoreUnavailable(_still_used(self._file.path))
        self.open(create=False)

    def _rescue(self, hold: FileHold, place: OpenedFiles) -> None:
        """Bring home what stands in a WAL that was removed; one that was replaced may not touch the file any more."""
        if place.holds_all(guarded=hold.guarded):
            with contextlib.suppress(apsw.Error):
                self.writing.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
        _leave_as_it_is(self.writing)

    def _lingers(self) -> bool:
        """Whether this process is still connected to what was lost: SQLite would not look at the files again."""
        hold = FileHold.now(self._file.path)
        if hold is not None:
            return hold.lost
        return any(_leads_to(connection, self._file.path) for connection in apsw.connections())

    # ------------------------------------------------------------------ using them

    def to_write(self) -> apsw.Connection:
        """Return the connection that writes; opens the file again, if it can be, after it was lost."""
        if self._writing is None:
            self.reopen()
        return self.writing

    @property
    def writing(self) -> apsw.Connection:
        """The connection that writes; raises StoreUnavailable while nothing is open."""
        if self._writing is None:
            raise self._closed()
        return self._writing

    def replace_writing(self) -> None:
        """Trust nothing that the connection has cached: reconnect, or keep it if that fails."""
        fresh = self._connect_writing()
        _close(self._writing)
        self._writing = fresh

    def take_write_lock(self) -> FileHold:
        """Let no other process write until the lock is dropped; raises BusyError if another one keeps it."""
        hold = self._hold
        if hold is None:
            raise self._closed()
        if not hold.take_write_lock(ask_again):
            raise apsw.BusyError
        return hold

    def checkpoint(self) -> None:
        """Bring some of the WAL into the file, unless another process is at it, and without waiting for any."""
        if self._hold is not None and self._writing is not None:
            self.check()
            with self._hold.checkpoint() as taken:
                if taken:
                    self._writing.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def read(self, function: Callable[[apsw.Connection], T]) -> T:
        """Call *function* in one read transaction, so that all it sees belongs together."""
        with self._lock:
            self.check()
            times, connection = self._times, self._idle.pop() if self._idle else self._file.reader()
        try:
            with connection:
                result = function(connection)
        finally:
            self._give_back(connection, times)
        return result

    def _give_back(self, connection: apsw.Connection, times: int) -> None:
        with self._lock:
            if times == self._times:
                self._idle.append(connection)
            else:
                _close(connection)

    def version(self) -> int:
        """Return a number that changes with every commit of any process; never waits."""
        if self._lock.acquire(blocking=False):
            try:
                if self._watch is not None:
                    self._version = int(self._watch.pragma("data_version"))
            finally:
                self._lock.release()
        return self._version


def _close(connection: apsw.Connection | None) -> None:
    if connection is not None:
        with contextlib.suppress(apsw.Error):
            connection.close(force=True)


def _leave_as_it_is(connection: apsw.Connection) -> None:
    """Let the connection, when it is closed, not bring its WAL into the file."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)


def _leads_to(connection: apsw.Connection, path: str) -> bool:
    try:
        return os.path.realpath(connection.filename) == os.path.realpath(path)
    except apsw.ConnectionClosedError:
        return False


def _still_used(path: str) -> str:
    return (
        f"cannot open {path!r} again yet: something in this process still has the lost file open; "
        "try again, or close it (another store, a connection of apsw)"
    )
