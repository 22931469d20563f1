"""The diagram in CONTRIBUTING names the files that a letter passes through."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import prometheus_client
import pytest

import redrive
from redrive import Redrive, RetryPolicy
from redrive.signals.prometheus import FactCounter
from redrive.stores.contract import Want

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
SOURCE = Path(redrive.__file__).parent
A_FILE = re.compile(r"[a-z_]+(?:/[a-z_]+)*\.py\b")


def test_every_file_of_the_page_exists():
    named = A_FILE.findall(PAGE.read_text(encoding="utf-8").replace("docs/generate.py", ""))
    assert len(set(named)) > 15
    assert [path for path in named if not (SOURCE / path).is_file()] == []


def way_of(actor: str) -> set[str]:
    """Return the files of the diagram's lines of *actor*: its own, and those below it that are indented."""
    [lines] = re.findall(rf"^{actor} .*(?:\n  .*)*", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return set(A_FILE.findall(lines))


class Passed:
    """The files of the package whose functions were called, in any thread that began since."""

    def __init__(self) -> None:
        self._called: set[str] = set()

    def note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._called.add(frame.f_code.co_filename)

    def since_last(self) -> set[str]:
        called, self._called = self._called, set()
        return {str(Path(each).relative_to(SOURCE)) for each in called if Path(each).is_relative_to(SOURCE)}


@pytest.fixture
def passed() -> Iterator[Passed]:
    passed, before, in_threads = Passed(), sys.getprofile(), threading.getprofile()
    threading.setprofile(passed.note)
    sys.setprofile(passed.note)
    yield passed
    sys.setprofile(before)
    threading.setprofile(in_threads)


async def test_a_letter_passes_through_every_file_of_the_diagram(tmp_path, passed):
    app = Redrive(f"sqlite:///{tmp_path}/redrive.db")
    app.listen(FactCounter(prometheus_client.CollectorRegistry()))

    @app.handler("parcel.ship", policy=RetryPolicy.immediate(max_attempts=2))
    async def ship(parcel: str) -> None:
        raise ConnectionError("away")

    await app.enqueue("parcel.ship", "4711")
    sending = passed.since_last()
    await app.run(until_idle=True, signals=False)
    working = passed.since_last()
    await app.desk.replay(query="kind:parcel.ship", reason="it is back")
    operating = passed.since_last()
    want = Want(queue="default", kinds=("parcel.ship",), limit=1)
    assert await app.store.claim([want], lease=60, worker="gone")
    await app.store.leave("gone")
    passed.since_last()
    await app.parts().worker.attend()
    sweeping = passed.since_last()
    await app.close()

    assert way_of("a sender") - sending == set()
    assert way_of("a worker") - working == set()
    assert way_of("an operator") - operating == set()
    assert way_of("a sweep") - sweeping == set()
    assert all(len(way_of(actor)) > 3 for actor in ("a sender", "a worker", "an operator", "a sweep"))
