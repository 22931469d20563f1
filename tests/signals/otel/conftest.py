"""What the tests of tracing share: the SDK with exporters that keep everything in memory."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

if find_spec("opentelemetry.sdk") is None:
    if os.environ.get("CI"):
        pytest.fail("there is no opentelemetry-sdk here: pip install --group test", pytrace=False)
    collect_ignore_glob = ["test_*.py"]
else:
    from tests.signals.otel.seen import Seen

    @pytest.fixture
    def seen() -> Seen:
        return Seen()
