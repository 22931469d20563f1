"""
The application for code that cannot await.

Owns one event loop in one thread, and hands every call over to it; nothing is written
twice. Knows no verb: whatever the application can await, this can call.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any


class Sync:
    """
    Calls an object's coroutine methods from plain code and waits for the result.

    Attributes that are objects of redrive, such as `desk`, come wrapped in the same way.
    """

    def __init__(self, target: Any, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._target = target
        self._loop = loop or _loop_in_a_thread()

    def __getattr__(self, name: str) -> Any:
        """Return the target's attribute, callable without await."""
        found = getattr(self._target, name)
        if inspect.iscoroutinefunction(found):
            return lambda *given, **named: self._call(found(*given, **named))
        if type(found).__module__.startswith("redrive.desk"):
            return Sync(found, self._loop)
        return found

    def _call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def _loop_in_a_thread() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="redrive-sync", daemon=True).start()
    return loop
