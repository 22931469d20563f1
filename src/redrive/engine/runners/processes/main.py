"""
A child process of the process engine.

Owns the loop of one child: read an order, run its letter, report. The next order may wait in the pipe by then; the
child reads it only after the report of the one before, and does not begin it if the parent has recalled it. A child
finds handlers by name, keeps them, and classifies failures itself, because exceptions cannot cross the pipe. It ends
when its pipe closes; when its parent dies it ends at once, in the middle of a letter. Knows no store.
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

from redrive.core.classify import classify
from redrive.core.decide import Failed
from redrive.core.policy import DEFAULT_RETRY_POLICY
from redrive.engine.attempt import attempt_now
from redrive.engine.clock import SystemClock
from redrive.engine.handler import Handler, build_handler
from redrive.engine.import_names import find
from redrive.engine.runners.processes.frames import HEAD, READY, Recipe, Report, RunOrder, length, pack, recalled
from redrive.errors import HandlerError

if TYPE_CHECKING:
    from typing import BinaryIO

    from redrive.core.letter import Letter

_decode = msgspec.msgpack.Decoder(RunOrder).decode
_decode_recipe = msgspec.msgpack.Decoder(Recipe).decode
_now = SystemClock().monotonic


def main(pipe: int, lifeline: int, recalls: int) -> None:
    """Serve the parent at the other end of *pipe* until it closes it; *recalls* carries the orders not to begin."""
    os.set_blocking(recalls, False)
    for descriptor in (pipe, lifeline, recalls):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - its only form
    # The parent decides when to stop, also when a terminal or a supervisor signals the whole group.
    # Not SIG_IGN: programs that handlers start would inherit that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_it_to_the_parent)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what a handler printed must not die with it
    threading.Thread(target=_die_with, args=(lifeline,), name="redrive-lifeline", daemon=True).start()
    with socket.socket(fileno=pipe) as end, end.makefile("rb") as orders:
        _serve(end, orders, recalls)


def _leave_it_to_the_parent(_number: int, _frame: object) -> None:
    pass


def _die_with(lifeline: int) -> None:
    """Wait for the parent's end of the lifeline to close, then kill this child and what its handlers started."""
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


def _serve(end: socket.socket, orders: BinaryIO, recalls: int) -> None:
    handlers: dict[bytes, Handler] = {}
    last = READY  # the newest order that was recalled; the order itself may come much later
    end.sendall(pack(Report(READY)))
    while (frame := _read(orders)) is not None:
        order = _decode(frame)
        last = max(last, _recalled(recalls))
        if order.number == last:
            end.sendall(pack(Report(order.number, recalled=True)))
        else:
            end.sendall(pack(_carry_out(order, handlers, end)))


def _recalled(recalls: int) -> int:
    """Return the number of the order that was recalled since the last call, READY if none was."""
    try:
        return recalled(os.read(recalls, 4_096))
    except OSError:  # nothing is there, or a handler closed it
        return READY


def _carry_out(order: RunOrder, handlers: dict[bytes, Handler], end: socket.socket) -> Report:
    handler = handlers.get(order.recipe)
    if handler is None:
        built = _build(_decode_recipe(order.recipe))
        if isinstance(built, Failed):
            return Report(order.number, failure=built.failure)
        handler = handlers[order.recipe] = built
        end.sendall(pack(Report(order.number, begins=True)))
    return Report(order.number) if order.letter is None else _run(handler, order.number, order.letter)


def _run(handler: Handler, number: int, letter: Letter) -> Report:
    began = _now()
    outcome = attempt_now(handler, letter)
    return Report(number, failure=outcome.failure if isinstance(outcome, Failed) else None, took=_now() - began)


def _read(orders: BinaryIO) -> bytes | None:
    """Return the next order's bytes, or None if the parent closed the pipe before they were all there."""
    head = orders.read(HEAD)
    if len(head) < HEAD:
        return None
    size = length(head)
    frame = orders.read(size)
    return frame if len(frame) == size else None


def _build(recipe: Recipe) -> Handler | Failed:
    try:
        return build_handler(
            recipe.kind,
            find(recipe.address),
            engine="process",
            succeeded=None if recipe.succeeded is None else find(recipe.succeeded),
            terminal_errors=recipe.terminal_errors,
            retryable_errors=recipe.retryable_errors,
            rules=recipe.rules,
        )
    except BaseException as error:  # noqa: BLE001 - importing a user's module runs user code
        trouble = HandlerError(
            f"a worker process cannot import the handler {recipe.address!r}; "
            "its module must import there by itself, as it does in `python -c 'import …'`"
        )
        trouble.__cause__ = error
        return Failed(classify(trouble, DEFAULT_RETRY_POLICY, recipe.rules))
