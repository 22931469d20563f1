"""A transaction that somebody holds open does not make claims slower and slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.torture.runs import held

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres

pytestmark = [pytest.mark.torture, pytest.mark.alone]


async def test_claims_stay_quick_beside_a_held_transaction(pg: Postgres):
    for _ in range(3):  # one that becomes slow does so each time; a machine that has other things to do does not
        found = await held.latency(pg.url, seconds=8, rate=500)
        print(found)
        assert found.letters == 4_000
        if found.last_p50 < 3 * found.first_p50 + 10:
            return
    pytest.fail(f"claims became slow: {found}")


async def test_a_drain_ends_beside_a_held_transaction(pg: Postgres):
    assert await held.drain(pg.url, letters=3_000, held=True) < 120
