"""One real broker for all tests of a run, and a scene for each test."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.servers.kafka import Broker
from tests.sources.kafka.client.test_forbidden import RULES
from tests.sources.kafka.needed import needed
from tests.sources.pipeline.scene import Scene


@pytest.fixture(scope="session")
def broker():
    with needed(), Broker(**RULES) as running:
        yield running


@pytest.fixture
def scene(broker, request):
    """An environment of its own for the test: its topics and groups are nobody else's."""
    with closing(Scene(broker.bootstrap, request.node.name)) as made:
        yield made
