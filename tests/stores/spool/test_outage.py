"""A real PostgreSQL that goes away and comes back under load."""

from __future__ import annotations

import pytest
from tests.servers.postgres import Missing, start
from tests.stores.conftest import server_url
from tests.stores.spool.outage import through_an_outage

pytest.importorskip("asyncpg")
RATE, AWAY = 500, 10.0  # letters a second, seconds


@pytest.fixture
def server():
    server_url()  # skips, or fails in CI, where there is none
    try:
        own = start(18)
    except Missing as missing:
        pytest.skip(str(missing))
    yield own
    own.stop()


async def test_letters_that_are_enqueued_while_postgresql_is_away_arrive_once_and_in_order(
    server, tmp_path, record_property
):
    found = await through_an_outage(server, tmp_path, rate=RATE, away=AWAY)
    record_property("letters_per_second", round(found.rate))
    print(
        f"{found.rate:.0f} letters a second, {found.spooled} of {found.accepted} spooled, {found.seconds:.1f} s behind"
    )
    assert found.problems == []
    assert "waiting" in found.health
    assert found.spooled > found.accepted / 2
    assert found.rate > RATE * 0.9  # they make up for the second in which the store is given up
