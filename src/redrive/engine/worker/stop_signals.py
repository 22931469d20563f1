"""
Stop workers at SIGTERM and SIGINT.

Owns which workers a signal stops: all that run on the event loop of the main thread, of every application. An event
loop keeps one handler per signal, so without this the last worker would replace the others. Knows nothing about
what stopping means.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_stops: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Callable[[], None]]] = WeakKeyDictionary()


@contextlib.contextmanager
def hearing(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* at each SIGTERM and SIGINT inside the block; signals reach only the main thread."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    stops = _stops.setdefault(loop, [])
    if not stops:
        for number in _SIGNALS:
            loop.add_signal_handler(number, _stop_all, stops)
    stops.append(stop)
    try:
        yield
    finally:
        stops.remove(stop)
        if not stops:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)


def _stop_all(stops: list[Callable[[], None]]) -> None:
    for stop in tuple(stops):
        stop()
