"""
A VFS that remembers what would be on the disk.

Owns the list of what SQLite asked of the disk, in order, with the answers that callers got
in between. `image` then says what a power cut at any point leaves behind: what was synced
is there; of what was not, some is there, some is missing and some is torn at 512 bytes.
Files go through to the real ones, so that several connections work as always.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

if TYPE_CHECKING:
    import random

SECTOR = 512
_names = itertools.count()


class Op(NamedTuple):
    """One request to the disk, or (`what` = "answer") something a caller was told."""

    what: str
    file: str = ""
    offset: int = 0
    data: bytes = b""
    answer: Any = None


class _File(apsw.VFSFile):
    def __init__(self, recorder: Recorder, filename: Any, flags: list[int]) -> None:
        super().__init__("", filename, flags)
        self._recorder = recorder
        path = filename.filename() if isinstance(filename, apsw.URIFilename) else filename
        self._name = Path(path).name if path else ""

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._recorder.note("write", self._name, offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._recorder.note("truncate", self._name, size)
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._recorder.note("sync", self._name)


class Recorder(apsw.VFS):
    """Records; its `name` is what a store takes as *vfs*."""

    def __init__(self) -> None:
        self.name = f"recorder-{next(_names)}"
        self.ops: list[Op] = []
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(filename, syncdir)
        self.note("delete", Path(filename).name)
        if syncdir:
            self.note("sync", Path(filename).name)

    def note(self, what: str, name: str, offset: int = 0, data: bytes = b"") -> None:
        if name:  # temporary files have none
            self.ops.append(Op(what, name, offset, data))

    def answered(self, answer: Any) -> None:
        """A caller was told *answer*: from here on it must be true, whatever happens."""
        self.ops.append(Op("answer", answer=answer))


class Disk:
    """What is on the platter for sure, and what is only in the cache, after the first n requests."""

    def __init__(self) -> None:
        self.synced: dict[str, bytearray | None] = {}
        self.cached: dict[str, list[Op]] = {}

    def take(self, op: Op) -> None:
        if op.what == "sync":
            if self.synced.get(op.file) is None or any(each.what == "delete" for each in self.cached.get(op.file, ())):
                self._sync_folder()
            for each in self.cached.pop(op.file, ()):
                _carry_out(self.synced, each)
        elif op.what != "answer":
            self.cached.setdefault(op.file, []).append(op)

    def _sync_folder(self) -> None:
        """The first sync of a new journal or WAL syncs its folder too: SQLite does so, and deletions are then final."""
        for name, ops in self.cached.items():
            gone = max((place for place, op in enumerate(ops) if op.what == "delete"), default=-1)
            if gone >= 0:
                self.synced[name] = None
                del self.cached[name][: gone + 1]

    def cut(self, rng: random.Random) -> dict[str, bytearray]:
        """Return the files that a power cut now leaves; *rng* decides about what was not synced."""
        files = {name: bytearray(data) for name, data in self.synced.items() if data is not None}
        for ops in self.cached.values():
            for op in ops:
                for part in _remains(op, rng):
                    _carry_out(files, part)
        return {name: data for name, data in files.items() if data is not None}


def _remains(op: Op, rng: random.Random) -> list[Op]:
    """Return what remains of a request that was not synced: all of it, nothing, or some of its sectors."""
    fate = rng.random()
    if fate < 0.5:
        return []
    if fate < 0.75 or op.what != "write":
        return [op]
    return [part for part in _sectors(op) if rng.random() < 0.5]


def _sectors(op: Op) -> list[Op]:
    """Cut a write where the disk's sectors begin."""
    end = op.offset + len(op.data)
    edges = [op.offset, *range((op.offset // SECTOR + 1) * SECTOR, end, SECTOR), end]
    return [
        op._replace(offset=start, data=op.data[start - op.offset : stop - op.offset])
        for start, stop in itertools.pairwise(edges)
    ]


def _carry_out(files: dict[str, Any], op: Op) -> None:
    if op.what == "delete":
        files[op.file] = None
        return
    content = files.get(op.file)
    if content is None:
        content = files[op.file] = bytearray()
    if op.what == "truncate":
        del content[op.offset :]
        content.extend(bytes(op.offset - len(content)))
    else:
        if len(content) < op.offset:
            content.extend(bytes(op.offset - len(content)))
        content[op.offset : op.offset + len(op.data)] = op.data
