"""
A child process of the process engine.

Owns the loop of one child: read an order, run its letter, mark or report its end. The next order may wait in the pipe
by then; the child reads it only after that, and does not begin it if the parent has recalled it. Of orders that came
together it reports the last one, and each that failed or took long; it marks the other successes. A child finds
handlers by name, keeps them, and classifies failures itself, because exceptions cannot cross the pipe. It ends when
its pipe closes; when its parent dies it ends at once, in the middle of a letter. Knows no store.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING

import msgspec

from redrive.core.decide import Failed
from redrive.engine.attempt import attempt_now
from redrive.engine.clock import SystemClock
from redrive.engine.runners.processes.frames import HEAD, READY, Report, RunOrder, length, pack
from redrive.engine.runners.processes.marks import Marks
from redrive.engine.runners.processes.recipes import built_from

if TYPE_CHECKING:
    from typing import BinaryIO

    from redrive.engine.handler import Handler

_LONG = 0.001  # seconds; a letter that took longer, and those before it, are reported without waiting for the next
_decode = msgspec.msgpack.Decoder(RunOrder).decode
_now = SystemClock().monotonic


def main(pipe: int, lifeline: int, page: int) -> None:
    """Serve the parent at the other end of *pipe* until it closes it; both ends mark orders on the shared *page*."""
    for descriptor in (pipe, lifeline):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - its only form
    marks = Marks(page)
    os.close(page)
    # The parent decides when to stop, also when a terminal or a supervisor signals the whole group.
    # Not SIG_IGN: programs that handlers start would inherit that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_it_to_the_parent)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what a handler printed must not die with it
    threading.Thread(target=_die_with, args=(lifeline,), name="redrive-lifeline", daemon=True).start()
    with socket.socket(fileno=pipe) as end, end.makefile("rb") as orders:
        _Service(end, marks).serve(orders)


def _leave_it_to_the_parent(_number: int, _frame: object) -> None:
    pass


def _die_with(lifeline: int) -> None:
    """Wait for the parent's end of the lifeline to close, then kill this child and what its handlers started."""
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


class _Service:
    """Runs the orders of one pipe."""

    def __init__(self, end: socket.socket, marks: Marks) -> None:
        self._end, self._marks = end, marks
        self._handlers: dict[bytes, Handler] = {}
        self._longest = 0.0  # seconds that the longest letter since the last report ran

    def serve(self, orders: BinaryIO) -> None:
        """Carry out orders until there are no more."""
        self._send(Report(READY))
        while (frame := _read(orders)) is not None:
            self._carry_out(_decode(frame))

    def _carry_out(self, order: RunOrder) -> None:
        if not self._marks.begin(order.number):
            self._send(Report(order.number, recalled=True))
            return
        handler = self._handlers.get(order.recipe)
        if handler is not None:
            self._run(handler, order, report=not order.more)
        elif (handler := self._built(order)) is not None:
            self._run(handler, order, report=True)  # its beginning was reported, so its end is, too

    def _built(self, order: RunOrder) -> Handler | None:
        built = built_from(order.recipe)
        if isinstance(built, Failed):
            self._send(Report(order.number, failure=built.failure))
            return None
        self._handlers[order.recipe] = built
        self._send(Report(order.number, begins=True))
        return built

    def _run(self, handler: Handler, order: RunOrder, *, report: bool) -> None:
        began = _now()
        outcome = None if order.letter is None else attempt_now(handler, order.letter)
        took = _now() - began
        self._longest = max(self._longest, took)
        if isinstance(outcome, Failed):
            self._send(Report(order.number, failure=outcome.failure, took=self._longest))
            return
        if report or took > _LONG:
            self._send(Report(order.number, took=self._longest))
        else:
            self._marks.succeed(order.number)

    def _send(self, report: Report) -> None:
        self._end.sendall(pack(report))
        self._longest = 0.0


def _read(orders: BinaryIO) -> bytes | None:
    """Return the next order's bytes, or None if the parent closed the pipe before they were all there."""
    head = orders.read(HEAD)
    if len(head) < HEAD:
        return None
    size = length(head)
    frame = orders.read(size)
    return frame if len(frame) == size else None
