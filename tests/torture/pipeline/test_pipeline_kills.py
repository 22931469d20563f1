"""Engines and modules die while documents go through a graph: every branch is accounted for."""

from __future__ import annotations

import os

import pytest
from tests.servers.kafka import Broker, Missing

pytest.importorskip("confluent_kafka")
pytest.importorskip("grpc")
from tests.torture.runs.brokers import pipeline_kills

pytestmark = pytest.mark.torture


def test_kill_9_of_engines_and_modules_at_random_loses_no_branch(tmp_path):
    try:
        with Broker() as broker:
            outcome = pipeline_kills.at_random(broker.bootstrap, tmp_path, 2_000, 10, seed=17)
    except Missing as missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))
    print(outcome)
    assert not outcome.problems
    assert outcome.ended == 4_000
    assert outcome.kills == 10
    assert outcome.readmitted >= outcome.quarantined >= 80  # of 100; calls of the others may have met dead modules
    assert outcome.dead >= 200
    assert outcome.replayed >= outcome.letters >= 100  # each of these is at the end after its replay
