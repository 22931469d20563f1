"""
Builds that are broken on purpose.

Owns one small sabotage a mutant, applied inside a process under torture; each must be
caught by the checker, or the checker is not worth its name.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from redrive.engine.worker.processor import Processor
from redrive.engine.worker.worker import Worker
from redrive.stores.contract import Exchanged
from redrive.stores.sqlite import claiming, settling
from redrive.stores.sqlite.file.database import File
from redrive.stores.sqlite.store import SqliteStore
from redrive.stores.sqlite.transaction import Transaction


def apply(name: str) -> None:
    """Break this process as *name* says; an empty name breaks nothing."""
    if name:
        MUTANTS[name]()


def _no_token_check() -> None:
    """A settlement looks at neither token nor status: whoever comes last wins."""
    settling._FENCE = " AND ? IS NOT NULL"


def _no_sync() -> None:
    """A commit does not wait for the disk."""
    writer = File.writer

    def unsafe(self: File) -> Any:
        connection = writer(self)
        connection.pragma("synchronous", "off")
        return connection

    File.writer = unsafe  # type: ignore[method-assign]


def _rescue_by_time() -> None:
    """A letter is taken back because it has run for a while, whatever its lease says, and without a token."""
    _no_token_check()
    _rescue_of_the_living()


def _rescue_of_the_living() -> None:
    """A letter is taken back while its worker lives and renews its lease; the tokens are checked."""

    def expired(connection: Any, _lease_now: int, now_us: int, limit: int, is_dead: Any) -> Any:
        return original(connection, 1 << 62, now_us, limit, is_dead)

    original, claiming.expired = claiming.expired, expired


def _forgotten_settlements() -> None:
    """The store says yes and writes nothing."""
    settling.settle = lambda _transaction, settlements: (True,) * len(settlements)


def _counters_not_kept() -> None:
    """Claims are not counted."""
    Transaction.moved = lambda *_: None  # type: ignore[method-assign, assignment]


def _early_yes() -> None:
    """A put answers before its transaction is committed."""

    async def put(self: SqliteStore, drafts: Any) -> Any:
        from redrive.stores.contract import Receipt  # noqa: PLC0415

        assert self._calls.writer is not None
        self._calls.writer.submit(_put, drafts)
        return [Receipt(draft.id) for draft in drafts]

    from redrive.stores.sqlite.putting import put as _put  # noqa: PLC0415

    SqliteStore.put = put  # type: ignore[method-assign]


def _no_rescue() -> None:
    """Nobody looks for lost letters."""

    async def rescue(_self: Processor, _limit: int = 0) -> int:
        return 0

    Processor.rescue = rescue  # type: ignore[method-assign]


def _rescue_forgets() -> None:
    """A sweep looks for lost letters and overlooks every third."""

    def expired(*arguments: Any) -> Any:
        return [claim for claim in original(*arguments) if claim.ref % 3]

    original, claiming.expired = claiming.expired, expired


def _no_sweep() -> None:
    """A worker does all its duties but the sweep."""

    async def sweeping(_self: Worker) -> None:
        await asyncio.Event().wait()

    Worker._sweeping = sweeping  # type: ignore[method-assign]


def _endless_sweep() -> None:
    """A sweep begins, and never ends."""

    async def rescue(_self: Processor, _limit: int = 0) -> int:
        await asyncio.Event().wait()
        return 0

    Processor.rescue = rescue  # type: ignore[method-assign]


def _dropped_outcomes() -> None:
    """A failing exchange forgets what it was to settle, and says it was settled."""

    async def exchange(self: SqliteStore, _settlements: Any, wants: Any, *, lease: float, worker: str) -> Exchanged:
        return Exchanged((True,) * len(_settlements), await self.claim(wants, lease=lease, worker=worker))

    SqliteStore.exchange = exchange  # type: ignore[method-assign]


def _delivered_unrun() -> None:
    """A lost letter is called delivered."""
    from redrive.core.decide import SUCCEEDED  # noqa: PLC0415
    from redrive.engine.worker.duties import rescue  # noqa: PLC0415

    assert rescue._outcomes
    rescue._outcomes = lambda claims, _suspects: [(claim, SUCCEEDED) for claim in claims]


# ---------------------------------------------------------------------- PostgreSQL


def _rewrite(*changes: tuple[str, str]) -> None:
    """Change the text of the SQL functions before this process makes the schema; each change must find something."""
    from redrive.stores.postgres.sql import schema  # noqa: PLC0415 - only where there is a driver

    original = schema.functions

    def changed(name: str) -> str:
        text = original(name)
        for old, new in changes:
            assert re.search(old, text), f"nothing is like {old}"
            text = re.sub(old, new, text)
        return text

    schema.functions = changed


def _pg_no_token_check() -> None:
    """A settlement looks at neither token nor status: whoever comes last wins."""
    _rewrite((r"AND o\.token = (c|m)\.token AND o\.status[^\n]*", ""))


def _pg_no_skip_locked() -> None:
    """A claim looks which letters are due, and takes them later, without having locked them."""
    _rewrite(
        (r"LIMIT v_counts\[n\] FOR NO KEY UPDATE SKIP LOCKED", "LIMIT v_counts[n]"),
        (r"\b([od])\.ctid\b", r"\1.seq"),
        (r"v_rows tid\[\]", "v_rows bigint[]"),
    )


def _pg_counters_not_kept() -> None:
    """Deliveries are not counted."""
    _rewrite((r"\('in_flight', -1\), \('delivered', 1\)", "('in_flight', 0), ('delivered', 0)"))


def _pg_settled_before_commit() -> None:
    """A settlement is answered, and its transaction is not committed."""
    from redrive.stores.postgres.store import PostgresStore  # noqa: PLC0415 - only where there is a driver

    exchange = PostgresStore.exchange

    async def early(self: PostgresStore, settlements: Any, wants: Any, *, lease: float, worker: str) -> Exchanged:
        late = settlements[: len(settlements) // 2]  # these are never written
        found = await exchange(self, settlements[len(late) :], wants, lease=lease, worker=worker)
        return Exchanged((True,) * len(late) + found.accepted, found.claims)

    PostgresStore.exchange = early  # type: ignore[method-assign]


def _pg_early_yes() -> None:
    """A put answers before its transaction is committed."""
    import asyncio  # noqa: PLC0415

    from redrive.stores.contract import Receipt  # noqa: PLC0415
    from redrive.stores.postgres.store import PostgresStore  # noqa: PLC0415

    original, tasks = PostgresStore.put, set()

    async def put(self: PostgresStore, drafts: Any) -> Any:
        tasks.add(asyncio.ensure_future(original(self, drafts)))
        return [Receipt(draft.id) for draft in drafts]

    PostgresStore.put = put  # type: ignore[method-assign]


def _pg_rescue_forgets() -> None:
    """A sweep looks for lost letters and overlooks every third."""
    from redrive.stores.postgres.store import PostgresStore  # noqa: PLC0415 - only where there is a driver

    original = PostgresStore.expired

    async def expired(self: PostgresStore, limit: int) -> Any:
        return [claim for claim in await original(self, limit) if claim.ref % 3]

    PostgresStore.expired = expired  # type: ignore[method-assign]


MUTANTS = {
    "pg_no_token_check": _pg_no_token_check,
    "pg_no_skip_locked": _pg_no_skip_locked,
    "pg_counters_not_kept": _pg_counters_not_kept,
    "pg_settled_before_commit": _pg_settled_before_commit,
    "pg_early_yes": _pg_early_yes,
    "pg_rescue_forgets": _pg_rescue_forgets,
    "no_token_check": _no_token_check,
    "no_sync": _no_sync,
    "rescue_by_time": _rescue_by_time,
    "rescue_of_the_living": _rescue_of_the_living,
    "forgotten_settlements": _forgotten_settlements,
    "counters_not_kept": _counters_not_kept,
    "early_yes": _early_yes,
    "no_rescue": _no_rescue,
    "rescue_forgets": _rescue_forgets,
    "no_sweep": _no_sweep,
    "endless_sweep": _endless_sweep,
    "dropped_outcomes": _dropped_outcomes,
    "delivered_unrun": _delivered_unrun,
}
