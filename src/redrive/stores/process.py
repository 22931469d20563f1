"""
Which process this is.

Owns the process id, asked of the system once and again after a fork: it is compared for every letter that comes in, and
each question is a system call. Knows no store.
"""

from __future__ import annotations

import os


class ThisProcess:
    """The id of the running process, also in a child that was forked."""

    __slots__ = ("pid",)

    def __init__(self) -> None:
        self.pid = os.getpid()
        if hasattr(os, "register_at_fork"):  # Windows has no fork
            os.register_at_fork(after_in_child=self._ask)

    def _ask(self) -> None:
        self.pid = os.getpid()


THIS = ThisProcess()
