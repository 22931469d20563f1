"""A system without `fcntl`, such as Windows: SQLite's own locks have to do, and threads still take turns."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest

from redrive.stores.sqlite.file import locks as here


@pytest.fixture
def locks(monkeypatch):
    """The module as such a system imports it."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "fcntl", None)  # importing it fails
    spec = spec_from_file_location("locks_elsewhere", here.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_file_is_held_and_one_writer_at_a_time_has_its_lock(locks, tmp_path):
    hold = locks.FileHold.of(str(tmp_path / "redrive.db"), create=True)
    assert hold.guard(lambda _asked: False)
    assert not hold.guarded  # `identity` has to notice a loss
    assert hold.take_write_lock(lambda _asked: False)
    assert not hold.take_write_lock(lambda _asked: False)
    hold.drop_write_lock()
    with hold.checkpoint() as taken:
        assert taken
    hold.unguard()
    hold.close()
    assert not locks.shm_in_use(0)
