"""A system without `fcntl`, such as Windows: the stores of one process still take turns at forwarding."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest

from redrive.stores.spool import forward_lock as here


@pytest.fixture
def forward_lock(monkeypatch):
    """The module as such a system imports it."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "fcntl", None)  # importing it fails
    spec = spec_from_file_location("forward_lock_elsewhere", here.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_store_at_a_time_forwards(forward_lock, tmp_path):
    one, other = (forward_lock.ForwardLock(str(tmp_path / "spool.db")) for _ in range(2))
    elsewhere = forward_lock.ForwardLock(str(tmp_path / "another.db"))
    assert one.take()
    assert one.take()  # it keeps it
    assert not other.take()
    assert elsewhere.take()
    other.unlock()  # it holds none
    assert not other.take()
    one.unlock()
    assert other.take()
