"""What a broker that cannot be had means for a test: on a laptop it is skipped, in CI it fails."""

from __future__ import annotations

import os
from contextlib import contextmanager

import pytest
from tests.servers.kafka import Missing


@contextmanager
def needed():
    """Start brokers within this."""
    try:
        yield
    except Missing as why:
        (pytest.fail if "CI" in os.environ else pytest.skip)(str(why))
