"""The broker that tests share, and a stage on it for each test."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.sources.kafka.shared import shared
from tests.sources.kafka.stage import Stage


@pytest.fixture(scope="session")
def broker(request):
    pytest.importorskip("confluent_kafka")
    with shared(request.config) as running:
        yield running


@pytest.fixture
def stage(broker, request):
    """A topic of its own for the test, with what it takes to look at it from outside."""
    with closing(Stage(broker.bootstrap, request.node.name)) as made:
        yield made
        made.clear()
