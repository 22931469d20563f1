"""Poison: whatever a handler does to its process, only its own letter pays."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import apsw
import pytest
from tests.torture import checker
from tests.torture.nursery import Nursery
from tests.torture.runs import poisons

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.torture, pytest.mark.alone]

NEIGHBOURS = 19
DEATHS = 8  # more than the three that convict would be a loop


class Ending(NamedTuple):
    """What became of the letters, and how often the worker died."""

    poison: tuple[str, str, str, int, int]
    neighbours: list[tuple[str, int, int]]
    deaths: int
    problems: list[str]


def run(nursery: Nursery, folder: Path, engine: str, kind: str) -> Ending:
    folder.mkdir()
    asyncio.run(_enqueue(folder, engine, kind))
    deaths = 0
    while nursery.wait(nursery.start("tests.torture.runs.poisons:work", folder=str(folder), engine=engine), 300):
        deaths += 1
        assert deaths <= DEATHS, f"{kind} in {engine} kills one worker after the other"
    connection = apsw.Connection(str(folder / "redrive.db"))
    columns = "status, why, error_type, attempts, losses"
    poison = connection.execute(f"SELECT {columns} FROM letters WHERE kind = 'poison'").fetchone()  # noqa: S608
    others = connection.execute("SELECT status, attempts, losses FROM letters WHERE kind = 'neighbour'").fetchall()
    connection.close()
    return Ending(poison, others, deaths, checker.books_problems(folder / "redrive.db"))


async def _enqueue(folder: Path, engine: str, kind: str) -> None:
    async with poisons.build(folder, engine) as app:
        drafts = [app.draft("neighbour", number) for number in range(NEIGHBOURS)]
        await app.enqueue_many([*drafts[:3], app.draft("poison", kind), *drafts[3:]])


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Ending]]:
    folder = tmp_path_factory.mktemp("poison")
    names = [(engine, kind) for engine in poisons.HANDLERS for kind in poisons.POISONS]
    with Nursery() as nursery, ThreadPoolExecutor(6) as pool:
        runs = {name: pool.submit(run, nursery, folder / "-".join(name), *name) for name in names}
        yield {name: each.result() for name, each in runs.items()}


@pytest.mark.parametrize("kind", ["abort", "segfault", "leave", "killed"])
@pytest.mark.parametrize("engine", list(poisons.HANDLERS))
def test_a_letter_that_kills_its_process_is_failed_after_three_losses(endings, engine: str, kind: str):
    ending = endings[engine, kind]
    assert ending.poison == ("failed", "worker_crashed", "WorkerCrashed", 0, 3)
    assert ending.deaths == (0 if engine == "process" else 3)


@pytest.mark.parametrize("kind", list(poisons.POISONS))
@pytest.mark.parametrize("engine", list(poisons.HANDLERS))
def test_the_neighbours_of_poison_are_delivered_and_not_blamed(endings, engine: str, kind: str):
    ending = endings[engine, kind]
    assert len(ending.neighbours) == NEIGHBOURS
    assert {status for status, _, _ in ending.neighbours} == {"delivered"}
    assert {attempts for _, attempts, _ in ending.neighbours} == {1}
    assert max(losses for _, _, losses in ending.neighbours) <= 1
    assert not ending.problems


@pytest.mark.parametrize("engine", list(poisons.HANDLERS))
def test_running_out_of_memory_where_python_notices_is_a_failure_like_others(endings, engine: str):
    status, why, error, attempts, losses = endings[engine, "out_of_memory"].poison
    assert (status, why, error, attempts, losses) == ("failed", "exhausted", "MemoryError", 2, 0)
    assert not endings[engine, "out_of_memory"].deaths


def test_a_handler_that_blocks_the_event_loop_is_ended_by_the_watchdog(endings):
    ending = endings["async", "endless_loop"]
    assert ending.poison == ("failed", "worker_crashed", "WorkerCrashed", 0, 3)
    assert ending.deaths == 3


@pytest.mark.parametrize("engine", ["thread", "process"])
def test_a_handler_that_never_ends_is_timed_out(endings, engine: str):
    status, why, error, attempts, losses = endings[engine, "endless_loop"].poison
    assert (status, why, attempts, losses) == ("failed", "exhausted", 2, 0)
    assert "Timeout" in error
    assert not endings[engine, "endless_loop"].deaths
