"""
Tasks that begin at once.

Owns the difference between Python versions: from 3.12 on a task can run up to its first wait before the caller goes on.
Knows no handler and no store.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Coroutine

T = TypeVar("T")

if sys.version_info >= (3, 12):

    def begin(
        coroutine: Coroutine[Any, Any, T],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Start *coroutine* as a task of its own, at once where Python can."""
        return asyncio.Task(coroutine, loop=loop, context=context, eager_start=True)

else:

    def begin(
        coroutine: Coroutine[Any, Any, T],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Start *coroutine* as a task of its own, at once where Python can."""
        return asyncio.Task(coroutine, loop=loop, context=context)
