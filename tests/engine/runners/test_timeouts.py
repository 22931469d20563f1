from __future__ import annotations

import asyncio

from redrive.engine.runners.timeouts import Limit


class Thing:
    def __init__(self):
        self.began = 0.0


class Loop:
    """A loop whose time is moved by hand."""

    def __init__(self):
        self.now, self.timers = 0.0, []

    def time(self):
        return self.now

    def call_at(self, when, callback):
        timer = asyncio.TimerHandle(when, callback, (), self)
        self.timers.append(timer)
        return timer

    def get_debug(self):
        return False

    def _timer_handle_cancelled(self, timer):
        pass

    def go_to(self, now):
        self.now = now
        due = [timer for timer in self.timers if timer.when() <= now and not timer.cancelled()]
        self.timers = [timer for timer in self.timers if timer not in due]
        for timer in due:
            timer._callback()


def test_what_is_held_for_too_long_is_told_of_once_and_in_order():
    loop, late, first, second = Loop(), [], Thing(), Thing()
    limit = Limit(30.0, late.append, loop)
    limit.hold(first)
    loop.now = 10.0
    limit.hold(second)

    loop.go_to(29.9)
    assert late == []
    loop.go_to(30.0)
    assert late == [first]
    loop.go_to(40.0)
    loop.go_to(90.0)
    assert late == [first, second]


def test_what_begins_anew_has_all_of_its_time_again():
    loop, late, busy, stuck = Loop(), [], Thing(), Thing()
    limit = Limit(30.0, late.append, loop)
    limit.hold(busy)
    limit.hold(stuck)
    loop.now = 20.0
    limit.hold(busy)

    loop.go_to(30.0)
    assert late == [stuck]
    loop.go_to(49.9)
    assert late == [stuck]
    loop.go_to(50.0)
    assert late == [stuck, busy]


def test_those_that_are_late_together_are_told_of_oldest_first():
    loop, late, old, older = Loop(), [], Thing(), Thing()
    limit = Limit(30.0, late.append, loop)
    limit.hold(old)
    limit.hold(older)
    loop.now = 5.0
    limit.hold(old)

    loop.go_to(60.0)
    assert late == [older, old]


def test_what_was_let_go_is_never_told_of_and_many_share_a_timer():
    loop, late, last = Loop(), [], Thing()
    limit = Limit(30.0, late.append, loop)
    for each in [Thing() for _ in range(1000)]:
        limit.hold(each)
        limit.let_go(each)
    limit.hold(last)
    limit.let_go(Thing())

    assert len(loop.timers) == 1
    loop.go_to(30.0)
    loop.go_to(60.0)
    assert late == [last]


def test_one_that_expires_may_hold_the_next():
    loop, late, things = Loop(), [], [Thing() for _ in range(3)]

    def expired(thing):
        late.append(thing)
        if thing is not things[-1]:
            limit.hold(things[things.index(thing) + 1])

    limit = Limit(1.0, expired, loop)
    limit.hold(things[0])
    for now in (1.0, 2.0, 3.0, 4.0):
        loop.go_to(now)
    assert late == things


def test_a_closed_limit_tells_nobody():
    loop, late = Loop(), []
    limit = Limit(1.0, late.append, loop)
    limit.hold(Thing())
    limit.close()
    limit.close()

    loop.go_to(5.0)
    assert late == []
