"""One real broker for all tests of a run."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.servers.kafka import Broker
from tests.sources.kafka.needed import needed
from tests.sources.kafka.stage import Stage


@pytest.fixture(scope="session")
def broker():
    pytest.importorskip("confluent_kafka")
    with needed(), Broker() as running:
        yield running


@pytest.fixture
def stage(broker, request):
    """A topic of its own for the test, with what it takes to look at it from outside."""
    with closing(Stage(broker.bootstrap, request.node.name)) as made:
        yield made
