"""The harness itself: stores that are broken on purpose must not pass the machine."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace
from tests.stores.contract.work.test_machine import Machine

from redrive.core import changes
from redrive.core.letter import Status
from redrive.stores.memory import claiming, ordering, rows

QUICK = settings(
    max_examples=4_000,  # it ends at the first that fails
    stateful_step_count=40,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)
_settled = changes.settled


class MemoryMachine(Machine):
    store_name = "memory"


def without_token_check(contents, claim):
    row = contents.table.rows.get(claim.ref)
    return row if row is not None and row.letter.status is Status.IN_FLIGHT else None


def by_time_only(contents, limit):
    return [claiming.claim_of(contents, row) for row in list(contents.table.in_flight.values())[:limit]]


def every_attempt_counts(letter, move, now):
    return replace(_settled(letter, move, now), attempts=letter.attempts)


def nobody_is_freed(table, letter_id):
    table.dependents.pop(letter_id, None)


def without_order(table, queue, key):
    for row in table.lanes[queue, key].values():
        if row.letter.status is Status.PENDING and not row.waits_for:
            ordering._join_line(table, row)


def forgetful(self, row):
    del self.rows[row.seq], self.seqs[row.letter.id]
    self.leave(row)


BROKEN = {
    "a stale claim settles": (claiming, "held", without_token_check),
    "leases end at once": (claiming, "expired", by_time_only),
    "attempts are never given back": (changes, "settled", every_attempt_counts),
    "nobody is told of a delivery": (ordering, "free_dependents", nobody_is_freed),
    "lanes keep no order": (ordering, "advance", without_order),
    "what is purged is not counted": (rows.LetterTable, "remove", forgetful),
}


# Where the search begins: from elsewhere it meets these two as well, after minutes.
BEGINNINGS = {"a stale claim settles": 100, "leases end at once": 101}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_store_is_caught(fault, monkeypatch, capsys):
    monkeypatch.setattr(*BROKEN[fault])
    machine = MemoryMachine
    if fault in BEGINNINGS:
        machine = seed(BEGINNINGS[fault])(type("BegunMachine", (MemoryMachine,), {}))
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(machine, settings=QUICK)
    capsys.readouterr()
