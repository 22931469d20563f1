"""
What all workers share in addition to letters: queues, workers, breakers, budgets, handled keys.

Owns these small tables. `core` says how a breaker or a budget behaves.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

import msgspec

from redrive.core import rate
from redrive.core.breaker import Breaker, BreakerRules, record, take_probes, tell
from redrive.core.budget import spend as spend_budget
from redrive.core.plan import AuditEntry
from redrive.stores import columns
from redrive.stores.contract import QueueSpec, QueueState, WorkerBeat
from redrive.stores.sqlite import ordering
from redrive.stores.sqlite.sql import statements
from redrive.stores.sqlite.transaction import QUEUE, QueueRow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import apsw

    from redrive.core.budget import BudgetRules
    from redrive.stores.sqlite.transaction import Transaction

T = TypeVar("T")
_SQL = statements("shared_state", queue=QUEUE)


def declare(transaction: Transaction, specs: Sequence[QueueSpec]) -> None:
    """Make the queues' settings known; lines letters up when a queue begins to keep order."""
    for spec in specs:
        before = transaction.queue(spec.name)
        transaction.sql(
            _SQL["declare"],
            (
                *(spec.name, spec.ordered, spec.max_size, spec.rate, spec.max_in_flight),
                *(rate.full(spec.rate or 0.0, 0).allowance, transaction.lease(0)),
            ),
        )
        if bool(before.ordered) != spec.ordered:
            (ordering.order if spec.ordered else ordering.disorder)(transaction, spec.name)
        transaction.forget_queues()


USED = _SQL["used"]


def queues(connection: apsw.Connection) -> list[QueueState]:
    """Return every queue that was declared or has letters."""
    declared = {row[0]: QueueRow(*row) for row in connection.execute(_SQL["queues"])}
    used = {row[0] for row in connection.execute(USED)}
    return [_state(declared.get(name) or QueueRow(name)) for name in sorted(used | declared.keys())]


def _state(row: QueueRow) -> QueueState:
    spec = QueueSpec(
        name=row.name, ordered=bool(row.ordered), max_size=row.max_size, rate=row.rate, max_in_flight=row.max_in_flight
    )
    return QueueState(spec=spec, paused=bool(row.paused), paused_by=row.paused_by, reason=row.reason)


def pause(transaction: Transaction, queue: str, paused: bool, by: str, reason: str) -> None:  # noqa: FBT001 - the store passes it on
    """Pause or resume, with an audit entry."""
    transaction.sql(_SQL["pause"], (queue, paused, by if paused else "", reason if paused else ""))
    transaction.audit(by, "pause" if paused else "resume", queue, 1, reason)
    transaction.forget_queues()
    transaction.wakes = True


def workers(connection: apsw.Connection, lease_now: int, is_dead: Callable[[str], bool]) -> list[WorkerBeat]:
    """Return the workers seen lately."""
    return [_beat(is_dead, *row) for row in connection.execute(_SQL["workers"], (lease_now,))]


def _beat(
    is_dead: Callable[[str], bool], name: str, taken: str, in_flight: int, seen_us: int, lease_lasts: int
) -> WorkerBeat:
    return WorkerBeat(
        name=name,
        **columns.read_taken(taken)._asdict(),
        in_flight=in_flight,
        seen_us=seen_us,
        alive=bool(lease_lasts) and not is_dead(name),
    )


def breakers(connection: apsw.Connection, now: float) -> dict[str, Breaker]:
    """Return every breaker as it stands now."""
    found = connection.execute(_SQL["breakers"])
    kept = {str(name): columns.BREAKER.decode(value) for name, value in found}
    return {name: tell(each.breaker, each.rules, now) for name, each in kept.items()}


def _read(transaction: Transaction, room: str, name: str, decoder: msgspec.json.Decoder[T]) -> T | None:
    row = transaction.sql(_SQL["read"], (room, name)).fetchone()
    return None if row is None else decoder.decode(row[0])


def _write(transaction: Transaction, room: str, name: str, value: object) -> None:
    transaction.sql(_SQL["write"], (room, name, columns.encode(value)))


def _breaker(transaction: Transaction, name: str) -> Breaker:
    kept = _read(transaction, "breaker", name, columns.BREAKER)
    return Breaker(name, since=transaction.now_us / 1e6) if kept is None else kept.breaker


def report(transaction: Transaction, name: str, rules: BreakerRules, successes: int, failures: int) -> Breaker:
    """Add outcomes to a breaker and return it."""
    after = record(_breaker(transaction, name), rules, successes, failures, transaction.now_us / 1e6)
    _write(transaction, "breaker", name, columns.KeptBreaker(after, rules))
    return after


def probe(transaction: Transaction, name: str, rules: BreakerRules, limit: int) -> int:
    """Return how many trial letters a breaker lets through."""
    after, allowed = take_probes(_breaker(transaction, name), rules, limit, transaction.now_us / 1e6)
    _write(transaction, "breaker", name, columns.KeptBreaker(after, rules))
    return allowed


def spend(transaction: Transaction, queue: str, rules: BudgetRules, firsts: int, retries: int) -> float:
    """Draw on a queue's retry budget."""
    before = _read(transaction, "budget", queue, columns.BUDGET)
    after, wait = spend_budget(before, rules, firsts, retries, transaction.now_us / 1e6)
    _write(transaction, "budget", queue, after)
    return wait


_counters: msgspec.json.Decoder[dict[str, int]] = msgspec.json.Decoder(dict[str, int])


def add_up(transaction: Transaction, name: str, amounts: Mapping[str, int]) -> dict[str, int]:
    """Add to the counters *name* and return all of them."""
    before = _read(transaction, "counters", name, _counters)
    after = dict(Counter(before or {}) + Counter(amounts))
    _write(transaction, "counters", name, after)
    return after


def sums(connection: apsw.Connection, name: str) -> dict[str, int]:
    """Return the counters *name*."""
    row = connection.execute(_SQL["read"], ("counters", name)).fetchone()
    return {} if row is None else _counters.decode(row[0])


def handled(transaction: Transaction, handler: str, key: str) -> bool:
    """Note that *handler* handled *key*; False if that was noted before."""
    transaction.sql(_SQL["handled"], (handler, key, transaction.now_us))
    return transaction.connection.changes() == 1


def write_down(transaction: Transaction, by: str, verb: str, target: str, count: int, reason: str) -> None:
    """Write an audit entry."""
    transaction.audit(by, verb, target, count, reason)


def audit(connection: apsw.Connection, limit: int) -> list[AuditEntry]:
    """Return the newest audit entries."""
    return [
        AuditEntry(seq=seq, at_us=at_us, by=by, verb=verb, target=target, count=count, reason=reason)
        for seq, at_us, by, verb, target, count, reason in connection.execute(_SQL["audit"], (limit,))
    ]
