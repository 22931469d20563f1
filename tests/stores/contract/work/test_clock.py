from __future__ import annotations

import time

import pytest

from redrive.stores.clock import ManualClock, SystemStoreClock


def test_a_manual_clock_moves_both_clocks_or_only_the_wall():
    clock = ManualClock(wall_us=1_000_000, lease_ms=5_000)
    clock.advance(1.5)
    assert (clock.wall_us(), clock.lease_ms()) == (2_500_000, 6_500)
    clock.jump(-2)
    assert (clock.wall_us(), clock.lease_ms()) == (500_000, 6_500)
    clock.jump(3)
    assert (clock.wall_us(), clock.lease_ms()) == (3_500_000, 6_500)


def test_small_steps_add_up_on_both_clocks():
    clock = ManualClock(wall_us=0, lease_ms=0)
    for _ in range(10):
        clock.advance(0.0005)
    assert (clock.wall_us(), clock.lease_ms()) == (5_000, 5)


def test_time_does_not_go_back():
    with pytest.raises(ValueError, match="use jump"):
        ManualClock().advance(-1)


def test_the_systems_clock_tells_the_wall_time_and_a_lease_time_that_only_grows():
    clock = SystemStoreClock()
    before = time.time()
    assert before - 1 < clock.wall_us() / 1e6 < before + 60
    first = clock.lease_ms()
    assert first <= clock.lease_ms() < first + 60_000
