"""
The same driving for plain test functions.

Owns an event loop of its own, on which every call of a `Drive` runs. Knows no test framework.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from redrive.testing.driving import drive

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from redrive.core.letter import Draft, Letter
    from redrive.stores.contract import Receipt, Store
    from redrive.testing.clock import FakeClock
    from redrive.testing.driving import Drive, DrivenApp

T = TypeVar("T")


@contextmanager
def drive_sync(app: DrivenApp, *, clock: FakeClock | None = None, store: Store | None = None) -> Iterator[SyncDrive]:
    """Do as `drive` does, for tests that are plain functions: with an event loop of its own."""
    with asyncio.Runner() as runner:
        driving = drive(app, clock=clock, store=store)
        test = SyncDrive(app, runner.run(driving.__aenter__()), runner.run)
        try:
            yield test
        finally:
            runner.run(driving.__aexit__(None, None, None))


class SyncDrive:
    """
    A worker that runs only when the test says so, for plain functions. Made by `drive_sync`.

    `clock` is its time, `facts` is everything announced so far; `run` runs any coroutine, such as
    `test.run(app.desk.replay(…))`.
    """

    def __init__(self, app: DrivenApp, test: Drive, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._app, self._test, self._run = app, test, run
        self.clock, self.facts, self.store = test.clock, test.facts, test.store

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what *coroutine* returns; it runs on the application's event loop."""
        result: T = self._run(coroutine)
        return result

    def enqueue(self, kind: str, payload: Any, **options: Any) -> Receipt:
        """Keep a letter; takes what `Redrive.enqueue` takes."""
        return self.run(self._app.enqueue(kind, payload, **options))

    def enqueue_many(self, drafts: Iterable[Draft]) -> list[Receipt]:
        """Keep all of *drafts* or none."""
        return self.run(self._app.enqueue_many(drafts))

    def tick(self, **options: Any) -> None:
        """Run what is due now; see `Drive.tick`."""
        self.run(self._test.tick(**options))

    def run_until_idle(self, **options: Any) -> None:
        """Run all letters to their end; see `Drive.run_until_idle`."""
        self.run(self._test.run_until_idle(**options))

    def letters(self, query: str = "") -> list[Letter]:
        """Return every letter that matches, newest first."""
        return self.run(self._test.letters(query))

    def letter(self, letter_id: str) -> Letter:
        """Return one letter; raise AssertionError if it is not kept."""
        return self.run(self._test.letter(letter_id))
