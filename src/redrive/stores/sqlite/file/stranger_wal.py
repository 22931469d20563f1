"""
Whether the WAL next to a database file belongs to it.

SQLite applies any complete WAL that it finds, also to a backup that was copied over the file after
a crash, and breaks it. So every write transaction of ours leaves a mark: which transaction it
is, and which one it followed. The database itself, without its WAL, stands at the transaction before
the WAL's first one, or at any that the WAL holds; a database that stands elsewhere is another one.
A backup made by VACUUM INTO may stand at one of them, too, but VACUUM has rearranged its pages: there the
schema's number is greater by one, which is a part of the mark.

Owns the mark's form and the look at the raw files, before SQLite opens them. What it cannot judge, it
lets pass. Writes nothing, and reads the database by a descriptor that the caller keeps open.
"""

from __future__ import annotations

import os
import secrets
import struct
import sys
from typing import TYPE_CHECKING

from redrive.errors import StoreDamaged, StoreUnavailable
from redrive.stores.sqlite.file.locks import shm_in_use

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGN = b"redrive:mark:"  # where a mark begins in a page
_LENGTH = 12  # of one half: 8 random bytes and the schema's number
_NONE = bytes(_LENGTH)  # what the first transaction followed
_META_PAGE = 2  # of the first table that was made
_HEADER, _FRAME = struct.Struct(">8I"), struct.Struct(">6I")
_MAGIC = 0x377F0682  # the last bit says how its checksums are made
_TRIES = 3


class StrangerWal(StoreUnavailable):
    """The WAL next to the file belongs to another database; a running process waits until an operator moves it away."""


def next_mark(before: bytes, schema: int) -> bytes:
    """Return the mark of a transaction that follows the one marked *before*."""
    return _SIGN + before[-_LENGTH:].rjust(_LENGTH, b"\0") + secrets.token_bytes(8) + schema.to_bytes(4)


def refuse_stranger(database: int, wal: str, path: str, *, running: bool) -> None:
    """
    Refuse a WAL at *wal* that belongs to another database than the open file *database*.

    Raise StrangerWal for a process that is *running* on the path, StoreDamaged for one that begins.
    """
    for _ in range(_TRIES):  # others may be at work: what was read must not have changed during the look
        before = _stand(database)
        found = _marks(wal)
        if found is None or _belongs(before, *found):
            return
        if before == _stand(database) and found == _marks(wal):
            raise StrangerWal(_wait(path, wal)) if running else StoreDamaged(_stranger(path, wal))


def refuse_stale_index(shm: str, wal: str, path: str) -> None:
    """Raise StoreUnavailable if the `-shm` is the index of another WAL, and a process still uses it."""
    try:
        file = os.open(shm, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        stale = all(_is_stale(file, wal) for _ in range(_TRIES))  # a WAL that is being restarted looks so for a moment
        if stale and shm_in_use(file):
            raise StoreUnavailable(_stale(path, shm))
    finally:
        os.close(file)


def _is_stale(shm: int, wal: str) -> bool:
    index = os.pread(shm, 48, 0)
    try:
        with open(wal, "rb") as file:  # noqa: PTH123 - together with os.pread
            salts = file.read(24)[16:]
    except OSError:
        salts = b""
    return len(index) == 48 and int.from_bytes(index[16:20], sys.byteorder) > 0 and index[32:40] != salts  # noqa: PLR2004 - SQLite's WAL-index header: 48 bytes, frames at 16, salts at 32


def _belongs(stand: tuple[bytes, int], marks: set[bytes], schemas: set[int]) -> bool:
    mark, schema = stand
    return mark in marks and schema in schemas


def _stand(database: int) -> tuple[bytes, int]:
    """Return where the database stands without any WAL: its mark and its schema's number."""
    first = os.pread(database, 100, 0)
    size = int.from_bytes(first[16:18]) or 4096
    page = os.pread(database, _size(size), (_META_PAGE - 1) * _size(size))
    return _own(page) or _NONE, int.from_bytes(first[40:44])


def _size(written: int) -> int:
    return 65_536 if written == 1 else written


def _own(page: bytes) -> bytes | None:
    halves = _halves(page)
    return halves[1] if halves else None


def _halves(page: bytes) -> tuple[bytes, bytes] | None:
    """Return which transaction the page's one followed, and which one it is."""
    at = page.rfind(_SIGN)  # the row ends the page; what stands before it may be left over
    both = page[at + len(_SIGN) :][: 2 * _LENGTH]
    return (both[:_LENGTH], both[_LENGTH:]) if at >= 0 and len(both) == 2 * _LENGTH else None


# ---------------------------------------------------------------------- the WAL


def _marks(wal: str) -> tuple[set[bytes], set[int]] | None:
    """Return the marks and schemas at which a database of this WAL may stand; None if it does not say."""
    try:
        file = os.open(wal, os.O_RDONLY | os.O_CLOEXEC)  # SQLite has no locks on it that a close could drop
    except OSError:
        return None
    try:
        return _read(_Wal(file))
    finally:
        os.close(file)


def _read(wal: _Wal) -> tuple[set[bytes], set[int]] | None:
    marks: set[bytes] = set()
    schemas: set[int] = set()
    for number, page in wal.frames():
        if number == 1:
            schemas.add(int.from_bytes(page[40:44]))
        elif halves := _halves(page):
            marks.update(halves if not marks else halves[1:])
    schemas.update(int.from_bytes(mark[8:]) for mark in marks)
    return (marks, schemas) if marks else None


class _Wal:
    """A WAL file, read without SQLite."""

    def __init__(self, file: int) -> None:
        self._file = file
        header = os.pread(file, _HEADER.size, 0)
        self._whole = len(header) == _HEADER.size
        magic, _, size, _, *self._salts, self._one, self._two = _HEADER.unpack(header) if self._whole else (0,) * 8
        self._size = _size(size)
        self._order = ">" if magic & 1 else "<"
        self._whole = self._whole and magic | 1 == _MAGIC | 1

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """
        Yield pages 1 and 2 wherever they stand, in order.

        The first ones up to a mark must have their checksums: a power cut may leave new heads of frames with old
        pages, which say something else. Behind it a wrong frame only lets more pass.
        """
        at, proven = _HEADER.size, False
        while self._whole:
            head = os.pread(self._file, _FRAME.size, at)
            if len(head) < _FRAME.size or list(_FRAME.unpack(head)[2:4]) != self._salts:
                return
            number = int.from_bytes(head[:4])
            page = b"" if proven and number > _META_PAGE else os.pread(self._file, self._size, at + _FRAME.size)
            if not proven and not self._follows(head, page):
                return
            if number <= _META_PAGE:
                yield number, page
                proven = proven or _halves(page) is not None
            at += _FRAME.size + self._size

    def _follows(self, head: bytes, page: bytes) -> bool:
        """Whether the frame's checksum is right; each goes on from the one before."""
        data = head[:8] + page
        if len(data) != 8 + self._size:
            return False
        words = struct.unpack(f"{self._order}{len(data) // 4}I", data)
        one, two = self._one, self._two
        for first, second in zip(words[::2], words[1::2], strict=True):
            one = (one + first + two) & 0xFFFFFFFF
            two = (two + second + one) & 0xFFFFFFFF
        self._one, self._two = one, two
        return (one, two) == _FRAME.unpack(head)[4:]


def _stale(path: str, shm: str) -> str:
    return (
        f"cannot open {path!r}: {shm!r} is another file's, which a process still has open; "
        "move it away too, or stop that process, and try again"
    )


def _stranger(path: str, wal: str) -> str:
    return (
        f"{_no_part_of(path, wal)}. If that file is what you want, stop every process that uses it, "
        f"move {wal!r} and the -shm file beside it away, and open it again; {_MISSING}"
    )


def _wait(path: str, wal: str) -> str:
    return (
        f"cannot use {path!r} now: {_no_part_of(path, wal)}. If that file is what you want, move {wal!r} and the -shm "
        f"file beside it away, and this process goes on by itself with the file that is there then; {_MISSING}"
    )


def _no_part_of(path: str, wal: str) -> str:
    return (
        f"{wal!r} does not belong to {path!r}: another file, perhaps a backup, was put in the place of the one that it "
        "belongs to; nothing was applied or changed"
    )


_MISSING = "letters that are only in the -wal will be missing"
