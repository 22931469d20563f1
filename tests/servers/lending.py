"""
Servers that all processes of one run of tests share.

    with Lender(broker=Broker) as lender: …      # the process that leads the run
    ask(lender.address, "broker")                # any other

Owns that a server is started once, when somebody first asks for it, and that it ends with the run: one thread of the
leading process starts them all, and lives as long as that process does. Knows nothing of what the servers are, and
nothing of how those who share one stay apart.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


class Missing(Exception):
    """The server cannot run here; the message says what to install."""


@dataclass(frozen=True)
class Answer:
    """Where the server is, or why there is none."""

    place: str = ""
    why_not: str = ""


class Lender:
    """Starts each server when it is first asked for, and ends them together; use it as a context manager."""

    def __init__(self, **servers: Callable[[], AbstractContextManager[str]]) -> None:
        self._servers, self._answers = servers, dict[str, Answer]()
        self.address = f"\0redrive-test-lender-{uuid.uuid4()}"  # a name that the kernel frees, and no file
        self._listener = Listener(self.address, family="AF_UNIX", backlog=16)
        self._thread = threading.Thread(target=self._serve, name="lender", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the servers; return once they have ended."""
        with Client(self.address, family="AF_UNIX") as caller:
            caller.send(None)
        self._thread.join()

    def _serve(self) -> None:
        with self._listener, contextlib.ExitStack() as running:
            while True:
                with contextlib.suppress(OSError, EOFError), self._listener.accept() as caller:  # it may have died
                    name = caller.recv()
                    if name is None:
                        return
                    caller.send(self._lend(name, running))

    def _lend(self, name: str, running: contextlib.ExitStack) -> Answer:
        if name not in self._answers:
            try:
                self._answers[name] = Answer(running.enter_context(self._servers[name]()))
            except Exception as why:  # noqa: BLE001 - whoever asked is told, and the next one at once
                self._answers[name] = Answer(why_not=f"{type(why).__name__}: {why}")
        return self._answers[name]


def ask(address: str, name: str) -> str:
    """Return where the server *name* of the run is; raise Missing if it cannot be started."""
    caller: Connection
    with Client(address, family="AF_UNIX") as caller:
        caller.send(name)
        answer: Answer = caller.recv()
    if answer.why_not:
        raise Missing(answer.why_not)
    return answer.place
