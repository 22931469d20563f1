"""One real broker for all tests of a run."""

from __future__ import annotations

import os
from contextlib import closing

import pytest
from tests.servers.kafka import Broker, Missing
from tests.sources.kafka.stage import Stage


@pytest.fixture(scope="session")
def broker():
    pytest.importorskip("confluent_kafka")
    try:
        with Broker() as running:
            yield running
    except Missing as why:
        (pytest.fail if "CI" in os.environ else pytest.skip)(str(why))


@pytest.fixture
def stage(broker, request):
    """A topic of its own for the test, with what it takes to look at it from outside."""
    with closing(Stage(broker.bootstrap, request.node.name)) as made:
        yield made
