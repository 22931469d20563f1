"""
The application for code that cannot await.

Owns an event loop in a thread of its own, and hands every call over to that loop, so no method is written twice.
`faces.py` has the types. Knows no verb: this can call every method that the application can await.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from typing import Any


class Sync:
    """
    Calls an object's coroutine methods from plain code and waits for the result.

    Attributes that are objects of redrive, such as `desk`, come wrapped in the same way.
    """

    def __init__(self, target: Any, home: _LoopThread | None = None) -> None:
        self._target = target
        self._home = home or _LoopThread()

    def __getattr__(self, name: str) -> Any:
        """Return the target's attribute, callable without await."""
        found = getattr(self._target, name)
        if inspect.iscoroutinefunction(found):
            return lambda *given, **named: self._call(found(*given, **named))
        if type(found).__module__.startswith("redrive.desk"):
            return Sync(found, self._home)
        return found

    def _call(self, coroutine: Any) -> Any:
        if self._home.is_here():
            coroutine.close()
            raise RuntimeError(
                "cannot call app.sync here: this is the event loop that would have to answer; await the application "
                "itself, such as `await app.enqueue(…)`"
            )
        return asyncio.run_coroutine_threadsafe(coroutine, self._home.loop()).result()


class _LoopThread:
    """One event loop in one thread, started by the first call; a fork has no threads, so a child starts its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made_by = 0
        self._thread: threading.Thread | None = None

    def is_here(self) -> bool:
        """Whether this is the loop's own thread."""
        return self._made_by == os.getpid() and threading.current_thread() is self._thread

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of this process."""
        with self._lock:
            if self._made_by != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="redrive-sync", daemon=True)
                self._thread.start()
                self._made_by = os.getpid()
            return self._loop
