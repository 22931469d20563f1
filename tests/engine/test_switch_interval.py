"""Threads take turns quickly while workers run, and only then."""

from __future__ import annotations

import sys

import pytest

from redrive.engine.switch_interval import INTERVAL, quick_switching


@pytest.fixture(autouse=True)
def _as_found():
    found = sys.getswitchinterval()
    yield
    sys.setswitchinterval(found)


def test_the_interval_is_short_inside_and_as_before_outside() -> None:
    sys.setswitchinterval(0.004)
    with quick_switching():
        assert sys.getswitchinterval() == pytest.approx(INTERVAL, rel=0.1)
    assert sys.getswitchinterval() == pytest.approx(0.004, rel=0.1)


def test_the_last_worker_to_leave_puts_it_back() -> None:
    sys.setswitchinterval(0.004)
    first, second = quick_switching(), quick_switching()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(INTERVAL, rel=0.1)
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(0.004, rel=0.1)


def test_a_shorter_interval_of_the_users_stays() -> None:
    sys.setswitchinterval(0.0001)
    with quick_switching():
        assert sys.getswitchinterval() == pytest.approx(0.0001, rel=0.1)
