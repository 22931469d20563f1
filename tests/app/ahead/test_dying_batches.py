"""Letters that a child process was given together, seen from the store: a death costs one of them a loss."""

from __future__ import annotations

import pytest
from tests.engine import handlers_for_processes as handlers

from redrive import Redrive
from redrive.engine.runners.processes.pool import ProcessEngine


@pytest.fixture
def together(monkeypatch):
    """Give children many letters at once from the first one on."""
    monkeypatch.setattr(ProcessEngine, "share", lambda *_: 16)


async def test_when_a_child_dies_only_the_letter_that_it_ran_counts_a_loss(driven, together, tmp_path):
    app = Redrive("memory://", concurrency=1)
    app.add_handler("order.created", handlers.obey, engine="process")
    notes = tmp_path / "notes"
    async with driven(app) as test:
        words = [{"note": str(notes), "name": f"{n:x}"} for n in range(16)]
        words[5]["die_once"] = str(tmp_path / "died")
        await app.enqueue_many([app.draft("order.created", each) for each in words])
        await test.run_until_idle()
        assert len(await test.letters("status:delivered attempts:1")) == 16
        [victim] = await test.letters("losses:>0")
    assert (victim.losses, sorted(notes.read_text())) == (1, sorted("01234556789abcdef"))


async def test_letters_with_large_payloads_are_not_given_together(driven, together):
    app, taken = Redrive("memory://", concurrency=1), []
    app.add_handler("order.created", handlers.obey, engine="process")
    async with driven(app) as test:
        start = test.processor.starter._hands_over["process"].start_many

        def noting(handler, items, done):
            taken.append(len(items))
            start(handler, items, done)

        test.processor.starter._hands_over["process"].start_many = noting
        await app.enqueue_many([app.draft("order.created", {"large": "x" * 5_000 * (n > 7)}) for n in range(16)])
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 16
    assert max(taken) <= 8
