"""
A disk that fails at the n-th request.

Owns a VFS that counts reads, writes, syncs, truncations and openings while it is armed,
and the loop of SQLite's own tests: fail the first, the second, the third … until a run
passes without having met its fault. Whatever the callers were told must be true afterwards,
and the same store must go on by itself.
"""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
from tests.torture import checker

from redrive.core.letter import Category, Draft, Failure, Status
from redrive.core.moves import Move
from redrive.core.query import parse
from redrive.errors import StoreError
from redrive.stores.contract import Want, WorkerBeat
from redrive.stores.sqlite import SqliteStore
from redrive.stores.sqlite.file import writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

_names = itertools.count()
FAULTS = {
    "EIO": {
        "read": apsw.SQLITE_IOERR_READ,
        "write": apsw.SQLITE_IOERR_WRITE,
        "sync": apsw.SQLITE_IOERR_FSYNC,
        "truncate": apsw.SQLITE_IOERR_TRUNCATE,
        "open": apsw.SQLITE_CANTOPEN,
    },
    "ENOSPC": {"write": apsw.SQLITE_FULL, "sync": apsw.SQLITE_FULL, "truncate": apsw.SQLITE_FULL},
}
_RECOVERIES = 3  # tries that a store has to go on after the fault is gone
WANT = Want("work", ("a",), 50)


class FaultyDisk(apsw.VFS):
    """Fails request number *at* (and, if it *stays*, all later ones) while armed."""

    def __init__(self, fault: str, at: int, *, stays: bool) -> None:
        self.name = f"faulty-{next(_names)}"
        self._fault, self._at, self._stays = FAULTS[fault], at, stays
        self.armed, self.requests, self.met = False, 0, False
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        self.request("open")
        return _File(self, name, flags)

    def request(self, what: str) -> None:
        if not self.armed or what not in self._fault:
            return
        self.requests += 1
        if self.requests == self._at or (self._stays and self.met):
            self.met = True
            raise apsw.exception_for(self._fault[what])


class _File(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, filename: Any, flags: list[int]) -> None:
        super().__init__("", filename, flags)
        self._disk = disk

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._disk.request("read")
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.request("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.request("sync")
        super().xSync(flags)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._disk.request("truncate")
        super().xTruncate(size)


# ---------------------------------------------------------------------- scenarios


class Told:
    """What the store answered: letters and the least token they must have now."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.tokens: dict[str, int] = {}
        self.errors: list[StoreError] = []
        self._count = 0

    async def ask(self, call: Awaitable[Any]) -> Any:
        """Return the answer, or None if the store says that it cannot now."""
        try:
            return await call
        except StoreError as error:
            self.errors.append(error)
            return None

    async def put(self, count: int = 3) -> None:
        self._count += 1
        names = [f"{self._count}-{number}" for number in range(count)]
        drafts = [Draft(id=name, queue="work", kind="a", payload=b"x" * 6_000) for name in names]
        for receipt in await self.ask(self.store.put(drafts)) or ():
            self.tokens[receipt.id] = 1

    async def claim(self) -> list[Any]:
        claims = await self.ask(self.store.claim([WANT], lease=60, worker="w")) or []
        self.tokens.update({claim.letter.id: claim.token for claim in claims})
        return claims

    async def settle(self, claims: list[Any], move: Move) -> None:
        settlements = [(claim, move) for claim in claims]
        accepted = await self.ask(self.store.settle(settlements)) or (False,) * len(claims)
        self.tokens.update(
            {claim.letter.id: claim.token + 1 for claim, yes in zip(claims, accepted, strict=True) if yes}
        )


FAILURE = Failure(error_type="E", message="boom", category=Category.TRANSIENT, rule="default", fingerprint="f")
FAILED = Move(Status.FAILED, "exhausted", failure=FAILURE, policy="p")
RETRY = Move(Status.PENDING, "backing off", failure=FAILURE, policy="p")
DELIVERED = Move(Status.DELIVERED, "succeeded")


async def put(told: Told) -> None:
    await told.put()
    await told.put()


async def claim_and_settle(told: Told) -> None:
    claims = await told.claim()
    await told.ask(told.store.extend(WorkerBeat(name="w", kinds=("a",)), claims, lease=60))
    await told.settle(claims[:1], RETRY)
    await told.settle(claims[1:], DELIVERED)


async def fail(told: Told) -> None:
    await told.settle(await told.claim(), FAILED)


async def replay(told: Told) -> None:
    dead = await told.ask(told.store.find(parse("status:failed"), limit=5))
    for letter in dead.letters if dead else ():
        acted = await told.ask(told.store.act("replay", [letter.id], by="ada", reason="again")) or ()
        told.tokens.update({each.id: each.token for each in acted})


async def look(told: Told) -> None:
    await told.ask(told.store.tallies())
    await told.ask(told.store.expired(10))
    await told.ask(told.store.backlog([WANT]))
    await told.ask(told.store.groups(parse("")))
    await told.ask(told.store.wait(0.03))


SCENARIOS: dict[str, Callable[[Told], Awaitable[None]]] = {
    "put": put,
    "claim_and_settle": claim_and_settle,
    "fail": fail,
    "replay": replay,
    "look": look,
}


class Ending(NamedTuple):
    """Whether a run met its fault, how many callers heard of it, and what is wrong."""

    met: bool
    refused: int
    problems: list[str]


async def prepare(folder: Path) -> None:
    """Make the file that every run starts from: pending and failed letters, and a WAL that is full of both."""
    store = SqliteStore(folder / "redrive.db")
    await store.open()
    told = Told(store)
    await told.put(4)
    await told.settle(await told.claim(), FAILED)
    await told.put(4)
    await store.close()


async def run(template: Path, folder: Path, scenario: str, fault: str, at: int, *, stays: bool) -> Ending:
    """Run *scenario* with the fault at request *at*."""
    writer.CHECKPOINT_PAGES = 10
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder)
    disk = FaultyDisk(fault, at, stays=stays)
    store = SqliteStore(folder / "redrive.db", vfs=disk.name)
    await store.open()
    told = Told(store)
    told._count = 100
    disk.armed = True
    await SCENARIOS[scenario](told)
    disk.armed = False
    refused = len(told.errors)
    problems = await _go_on(told)
    await store.close()
    rows = checker.read_rows(folder / "redrive.db")
    problems += [
        f"{letter_id} was answered for @{token}"
        for letter_id, token in told.tokens.items()
        if letter_id not in rows or rows[letter_id].token < token
    ]
    return Ending(disk.met, refused, problems + checker.books_problems(folder / "redrive.db"))


async def _go_on(told: Told) -> list[str]:
    """The fault is gone: the same store must work again, by itself."""
    for _ in range(_RECOVERIES):
        told.errors.clear()
        await told.put(1)
        await told.settle(await told.claim(), DELIVERED)
        await told.ask(told.store.tallies())
        if not told.errors:
            return []
    return [f"the store does not go on: {told.errors[-1]!r}"]
