"""What tests of the inbox share: an application on every embedded store, and secrets in the environment."""

from __future__ import annotations

import pytest

from redrive import Redrive

KEY = b"a secret of the tests"


@pytest.fixture(autouse=True)
def _secrets(monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", KEY.decode())


@pytest.fixture
async def app(tmp_path):
    made = Redrive(f"sqlite:///{tmp_path}/inbox.db")  # not yet opened: an inbox is made before its application is
    yield made
    await made.close()
