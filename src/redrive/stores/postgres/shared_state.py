"""
What all workers share in addition to letters: queues, workers, breakers, budgets, handled keys.

Owns these small tables. How a breaker or a budget behaves is defined in `core`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from redrive.core.breaker import Breaker, BreakerRules, record, take_probes, tell
from redrive.core.budget import spend as spend_budget
from redrive.core.plan import AuditEntry
from redrive.stores.columns import BREAKER, BUDGET, KeptBreaker, encode, read_taken, taken_by
from redrive.stores.contract import QueueSpec, QueueState, WorkerBeat, seq_of
from redrive.stores.postgres.texts import escape, name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redrive.core.budget import BudgetRules
    from redrive.stores.contract import Claim
    from redrive.stores.postgres.server.transaction import Transaction

T = TypeVar("T")


async def declare(transaction: Transaction, specs: Sequence[QueueSpec]) -> None:
    """Make the queues' settings known; lines letters up when a queue begins to keep order."""
    await transaction.rows("lock_state", "declare", "")  # one at a time
    for spec in sorted(specs, key=lambda spec: spec.name):
        queue = transaction.name(spec.name)
        before = bool(await transaction.value("is_ordered", queue))
        if before != spec.ordered:
            await _lock_queues(transaction)
        await transaction.rows(
            "declare", queue, spec.ordered, spec.max_size, spec.rate, spec.max_in_flight, transaction.now.wall
        )
        if before != spec.ordered:
            await transaction.rows("order", queue, spec.ordered)


async def _lock_queues(transaction: Transaction) -> None:
    """
    Wait for the transactions that put or settled by the queues' old settings.

    Every transaction that moves a letter of a lane has read them. Others wait until then, so this
    gives up soon when a user's transaction is open, and is asked again.
    """
    await transaction.rows("wait_for_users")
    await transaction.connection.execute(transaction.sql["lock_queues"])


async def queues(transaction: Transaction) -> list[QueueState]:
    """Return every queue that was declared or has letters."""
    return sorted(
        (_state(transaction, row) for row in await transaction.rows("queues")), key=lambda state: state.spec.name
    )


def _state(transaction: Transaction, row: Any) -> QueueState:
    spec = QueueSpec(
        name=transaction.text(row["name"]),
        ordered=row["ordered"],
        max_size=row["max_size"],
        rate=row["rate"],
        max_in_flight=row["max_in_flight"],
    )
    return QueueState(
        spec=spec,
        paused=row["paused"],
        paused_by=transaction.text(row["paused_by"]),
        reason=transaction.text(row["reason"]),
    )


async def pause(transaction: Transaction, queue: str, paused: bool, by: str, reason: str) -> None:  # noqa: FBT001 - the store passes it on
    """Pause or resume, with an audit entry."""
    told = (escape(by), escape(reason)) if paused else ("", "")
    await transaction.rows("pause", transaction.name(queue), paused, *told)
    await transaction.audit(by, "pause" if paused else "resume", queue, 1, reason)


async def leave(transaction: Transaction, worker: str) -> None:
    """Forget a worker that has ended."""
    await transaction.rows("leave", name(worker))


def told_by(beat: WorkerBeat, claims: Sequence[Claim], noted: dict[str, str]) -> tuple[Any, ...]:
    """Return what a heartbeat says and renews: in order of seq, so that two callers lock rows alike."""
    renewed = sorted((seq_of(claim), claim.letter.token) for claim in claims)
    seqs, tokens = [seq for seq, _ in renewed], [token for _, token in renewed]
    return name(beat.name, noted), taken_by(beat), beat.in_flight, seqs, tokens, True


async def workers(transaction: Transaction) -> list[WorkerBeat]:
    """Return the workers seen lately."""
    return [_beat(transaction, row) for row in await transaction.rows("workers", transaction.now.lease)]


def _beat(transaction: Transaction, row: Any) -> WorkerBeat:
    return WorkerBeat(
        name=transaction.text(row["name"]),
        **read_taken(row["kinds"])._asdict(),
        in_flight=row["in_flight"],
        seen_us=row["seen_us"],
        alive=row["alive"],
    )


async def breakers(transaction: Transaction) -> dict[str, Breaker]:
    """Return every breaker as it stands now."""
    now = await transaction.now_us() / 1e6
    kept = {transaction.text(row["name"]): BREAKER.decode(row["value"]) for row in await transaction.rows("breakers")}
    return {name: tell(each.breaker, each.rules, now) for name, each in kept.items()}


async def _read(transaction: Transaction, room: str, named: str, decoder: msgspec.json.Decoder[T]) -> T | None:
    """Read what is kept, and lock it until the transaction ends."""
    await transaction.rows("lock_state", room, name(named))
    value = await transaction.value("read_state", room, name(named))
    return None if value is None else decoder.decode(value)


async def _write(transaction: Transaction, room: str, named: str, value: object) -> None:
    await transaction.rows("write_state", room, transaction.name(named), encode(value))


async def report(transaction: Transaction, breaker: str, rules: BreakerRules, successes: int, failures: int) -> Breaker:
    """Add outcomes to a breaker and return it."""
    kept, now = await _read(transaction, "breaker", breaker, BREAKER), await transaction.now_us() / 1e6
    before = Breaker(breaker, since=now) if kept is None else kept.breaker
    after = record(before, rules, successes, failures, now)
    await _write(transaction, "breaker", breaker, KeptBreaker(after, rules))
    return after


async def probe(transaction: Transaction, breaker: str, rules: BreakerRules, limit: int) -> int:
    """Return how many trial letters a breaker lets through."""
    kept, now = await _read(transaction, "breaker", breaker, BREAKER), await transaction.now_us() / 1e6
    before = Breaker(breaker, since=now) if kept is None else kept.breaker
    after, allowed = take_probes(before, rules, limit, now)
    await _write(transaction, "breaker", breaker, KeptBreaker(after, rules))
    return allowed


async def spend(transaction: Transaction, queue: str, rules: BudgetRules, firsts: int, retries: int) -> float:
    """Draw on a queue's retry budget."""
    before = await _read(transaction, "budget", queue, BUDGET)
    after, wait = spend_budget(before, rules, firsts, retries, await transaction.now_us() / 1e6)
    await _write(transaction, "budget", queue, after)
    return wait


_counters = msgspec.json.Decoder(dict[str, int])


async def add_up(transaction: Transaction, counters: str, amounts: Mapping[str, int]) -> dict[str, int]:
    """Add to the counters of this name and return all of them."""
    before = await _read(transaction, "counters", counters, _counters)
    after = dict(Counter(before or {}) + Counter(amounts))
    await _write(transaction, "counters", counters, after)
    return after


async def sums(transaction: Transaction, counters: str) -> dict[str, int]:
    """Return the counters of this name."""
    value = await transaction.value("read_state", "counters", name(counters))
    return {} if value is None else _counters.decode(value)


async def handled(transaction: Transaction, handler: str, key: str) -> bool:
    """Note that *handler* handled *key*; False if that was noted before."""
    return (
        await transaction.value("handled", transaction.name(handler), transaction.name(key), transaction.now.wall)
        is not None
    )


async def write_down(transaction: Transaction, by: str, verb: str, target: str, count: int, reason: str) -> None:
    """Write an audit entry."""
    await transaction.audit(by, verb, target, count, reason)


async def audit(transaction: Transaction, limit: int) -> list[AuditEntry]:
    """Return the newest audit entries."""
    return [
        AuditEntry(
            seq=row["seq"],
            at_us=row["at_us"],
            by=transaction.text(row["by"]),
            verb=row["verb"],
            target=transaction.text(row["target"]),
            count=row["count"],
            reason=transaction.text(row["reason"]),
        )
        for row in await transaction.rows("audit_log", limit)
    ]
