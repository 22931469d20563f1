"""
Being told to stop by a signal.

Owns who hears SIGTERM and SIGINT: every worker that runs on the event loop of the main thread,
whichever application it is of. A loop keeps one handler per signal, so that whoever asked last
would be the only one. Knows nothing of what stopping means.
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
_told: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Callable[[], None]]] = WeakKeyDictionary()


@contextlib.contextmanager
def hearing(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* at each SIGTERM and SIGINT meanwhile; only the main thread hears them."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    told = _told.setdefault(loop, [])
    if not told:
        for number in _SIGNALS:
            loop.add_signal_handler(number, _tell, told)
    told.append(stop)
    try:
        yield
    finally:
        told.remove(stop)
        if not told:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)


def _tell(told: list[Callable[[], None]]) -> None:
    for stop in tuple(told):
        stop()
