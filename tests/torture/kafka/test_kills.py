"""Members of a consumer group die, join and leave: every record is handled or dead-lettered, in its key's order."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.servers.kafka import Broker, Missing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("confluent_kafka")
from tests.torture.runs.brokers import kafka_kills

pytestmark = pytest.mark.torture
SEED = 20_260_401


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    try:
        with Broker() as broker:
            yield broker.bootstrap
    except Missing as missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))


def test_kill_9_of_members_at_random_loses_nothing(tmp_path: Path, bootstrap: str):
    outcome = kafka_kills.at_random(bootstrap, tmp_path, 1_000, 10, SEED)
    print(outcome)
    assert not outcome.problems
    assert (outcome.handled, outcome.dead) == (900, 100)
    assert outcome.looks > 2


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_that_join_and_leave_while_others_work_lose_nothing(tmp_path: Path, bootstrap: str, protocol: str):
    outcome = kafka_kills.Outcome(produced=1_600, problems=[])
    with kafka_kills.Group(bootstrap, tmp_path, f"storm-{protocol}", protocol, mortal=False) as group:
        group.start()
        for round_ in range(4):
            group.start()
            group.produce(400 * round_, 400 * (round_ + 1))
            group.await_members(2)  # the new one has joined while the other works
            group.leave(round_ % 2)
        kafka_kills.judge(group, outcome)
    print(outcome)
    assert not outcome.problems
    assert (outcome.handled, outcome.dead) == (1_440, 160)
    assert outcome.dead_twice == 0, "nobody died, so that every dead letter was committed with its record"
