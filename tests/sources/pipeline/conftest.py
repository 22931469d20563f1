"""The broker that tests share, and a scene on it for each test."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.sources.kafka.shared import shared
from tests.sources.pipeline.scene import Scene


@pytest.fixture(scope="session")
def broker(request):
    with shared(request.config) as running:
        yield running


@pytest.fixture
def scene(broker, request):
    """An environment of its own for the test: its topics and groups are nobody else's."""
    with closing(Scene(broker.bootstrap, request.node.name)) as made:
        yield made
        made.stage.clear(made.env)
