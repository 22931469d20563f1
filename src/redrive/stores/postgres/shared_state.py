"""
What all workers share beside letters: queues, workers, breakers, budgets, handled keys.

Owns these small tables. How a breaker or a budget behaves is said in `core`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from redrive.core.breaker import Breaker, BreakerRules, record, take_probes, tell
from redrive.core.budget import Budget
from redrive.core.budget import spend as spend_budget
from redrive.core.plan import AuditEntry
from redrive.stores.columns import encode, read_taken, taken_by
from redrive.stores.contract import QueueSpec, QueueState, WorkerBeat
from redrive.stores.postgres.texts import escape, name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.budget import BudgetRules
    from redrive.stores.contract import Claim
    from redrive.stores.postgres.server.transaction import Turn

T = TypeVar("T")


async def declare(turn: Turn, specs: Sequence[QueueSpec]) -> None:
    """Make the queues' settings known; lines letters up when a queue begins to keep order."""
    await turn.rows("lock_state", "declare", "")  # one at a time
    for spec in sorted(specs, key=lambda spec: spec.name):
        queue = turn.name(spec.name)
        before = bool(await turn.value("is_ordered", queue))
        if before != spec.ordered:
            await _lock_queues(turn)
        await turn.rows("declare", queue, spec.ordered, spec.max_size, spec.rate, spec.max_in_flight, turn.now.wall)
        if before != spec.ordered:
            await turn.rows("order", queue, spec.ordered)


async def _lock_queues(turn: Turn) -> None:
    """
    Wait until nobody is left who put or settled by the queues' old settings.

    Everybody who moves a letter of a lane has read them in the same transaction. Others wait meanwhile, so this
    gives up soon when a user's transaction is open, and is asked again.
    """
    await turn.rows("wait_for_users")
    await turn.connection.execute(turn.sql["lock_queues"])


async def queues(turn: Turn) -> list[QueueState]:
    """Return every queue that was declared or has letters."""
    return sorted((_state(turn, row) for row in await turn.rows("queues")), key=lambda state: state.spec.name)


def _state(turn: Turn, row: Any) -> QueueState:
    spec = QueueSpec(
        name=turn.text(row["name"]),
        ordered=row["ordered"],
        max_size=row["max_size"],
        rate=row["rate"],
        max_in_flight=row["max_in_flight"],
    )
    return QueueState(
        spec=spec, paused=row["paused"], paused_by=turn.text(row["paused_by"]), reason=turn.text(row["reason"])
    )


async def pause(turn: Turn, queue: str, paused: bool, by: str, reason: str) -> None:  # noqa: FBT001 - the store passes it on
    """Pause or resume, with an audit entry."""
    told = (escape(by), escape(reason)) if paused else ("", "")
    await turn.rows("pause", turn.name(queue), paused, *told)
    await turn.audit(by, "pause" if paused else "resume", queue, 1, reason)


async def leave(turn: Turn, worker: str) -> None:
    """Forget a worker that has ended."""
    await turn.rows("leave", name(worker))


def told_by(beat: WorkerBeat, claims: Sequence[Claim], noted: dict[str, str]) -> tuple[Any, ...]:
    """Return what a heartbeat says and renews: in order of place, so that two callers lock rows alike."""
    held = sorted((claim.ref, claim.letter.token) for claim in claims)
    refs, tokens = [ref for ref, _ in held], [token for _, token in held]
    return name(beat.name, noted), taken_by(beat), beat.in_flight, refs, tokens, True


async def workers(turn: Turn) -> list[WorkerBeat]:
    """Return the workers seen lately."""
    return [_beat(turn, row) for row in await turn.rows("workers", turn.now.lease)]


def _beat(turn: Turn, row: Any) -> WorkerBeat:
    return WorkerBeat(
        name=turn.text(row["name"]),
        **read_taken(row["kinds"])._asdict(),
        in_flight=row["in_flight"],
        seen_us=row["seen_us"],
        alive=row["alive"],
    )


class Watched(msgspec.Struct, frozen=True):
    """A breaker and the rules it was last asked with."""

    breaker: Breaker
    rules: BreakerRules


_watched = msgspec.json.Decoder(Watched)
_budget = msgspec.json.Decoder(Budget)


async def breakers(turn: Turn) -> dict[str, Breaker]:
    """Return every breaker as it stands now."""
    now = await turn.now_us() / 1e6
    kept = {turn.text(row["name"]): _watched.decode(row["value"]) for row in await turn.rows("breakers")}
    return {name: tell(each.breaker, each.rules, now) for name, each in kept.items()}


async def _read(turn: Turn, room: str, named: str, decoder: msgspec.json.Decoder[T]) -> T | None:
    """Read what is kept, and let nobody else change it meanwhile."""
    await turn.rows("lock_state", room, name(named))
    value = await turn.value("read_state", room, name(named))
    return None if value is None else decoder.decode(value)


async def _write(turn: Turn, room: str, named: str, value: object) -> None:
    await turn.rows("write_state", room, turn.name(named), encode(value))


async def report(turn: Turn, breaker: str, rules: BreakerRules, successes: int, failures: int) -> Breaker:
    """Add outcomes to a breaker and return it."""
    kept, now = await _read(turn, "breaker", breaker, _watched), await turn.now_us() / 1e6
    before = Breaker(breaker, since=now) if kept is None else kept.breaker
    after = record(before, rules, successes, failures, now)
    await _write(turn, "breaker", breaker, Watched(after, rules))
    return after


async def probe(turn: Turn, breaker: str, rules: BreakerRules, limit: int) -> int:
    """Return how many trial letters a breaker lets through."""
    kept, now = await _read(turn, "breaker", breaker, _watched), await turn.now_us() / 1e6
    before = Breaker(breaker, since=now) if kept is None else kept.breaker
    after, allowed = take_probes(before, rules, limit, now)
    await _write(turn, "breaker", breaker, Watched(after, rules))
    return allowed


async def spend(turn: Turn, queue: str, rules: BudgetRules, firsts: int, retries: int) -> float:
    """Draw on a queue's retry budget."""
    before = await _read(turn, "budget", queue, _budget)
    after, wait = spend_budget(before, rules, firsts, retries, await turn.now_us() / 1e6)
    await _write(turn, "budget", queue, after)
    return wait


async def handled(turn: Turn, handler: str, key: str) -> bool:
    """Note that *handler* handled *key*; False if that was noted before."""
    return await turn.value("handled", turn.name(handler), turn.name(key), turn.now.wall) is not None


async def write_down(turn: Turn, by: str, verb: str, target: str, count: int, reason: str) -> None:
    """Write an audit entry."""
    await turn.audit(by, verb, target, count, reason)


async def audit(turn: Turn, limit: int) -> list[AuditEntry]:
    """Return the newest audit entries."""
    return [
        AuditEntry(
            seq=row["seq"],
            at_us=row["at_us"],
            by=turn.text(row["by"]),
            verb=row["verb"],
            target=turn.text(row["target"]),
            count=row["count"],
            reason=turn.text(row["reason"]),
        )
        for row in await turn.rows("audit_log", limit)
    ]
