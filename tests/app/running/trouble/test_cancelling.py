"""A worker that is cancelled gives back what it holds, and blames no letter for it."""

from __future__ import annotations

import asyncio

import pytest
from tests.engine.starting import soon

from redrive import Redrive
from redrive.core.letter import Status
from redrive.errors import DraftError


async def test_a_cancelled_worker_gives_the_attempt_back_and_adds_no_loss(folder):
    app = Redrive(f"sqlite:///{folder}/redrive.db")
    began = asyncio.Event()

    @app.handler("slow")
    async def slow(order: dict):
        began.set()
        await asyncio.Event().wait()

    receipt = await app.enqueue("slow", {})
    for _ in range(3):
        began.clear()
        worker = asyncio.ensure_future(app.run(signals=False))
        await soon(began.wait())
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker
        letter = await app.desk.show(receipt.id)
        assert (letter.status, letter.attempts, letter.losses) == (Status.PENDING, 0, 0)
    await app.close()


@pytest.mark.parametrize("later", [False, True])
async def test_a_handler_that_raises_generator_exit_has_failed(app, driven, later):
    @app.handler("odd")
    async def odd(order: dict):
        if later:
            await asyncio.sleep(0)
        raise GeneratorExit

    async with driven(app) as test:
        receipt = await app.enqueue("odd", {}, policy="never")
        await test.run_until_idle()
        assert (await test.letter(receipt.id)).status is Status.FAILED


@pytest.mark.parametrize("headers", [[("trace", "abc")], [(b"trace", b"abc")]])
async def test_headers_that_are_not_text_and_bytes_are_refused(app, headers):
    with pytest.raises(DraftError, match="is no pair of str and bytes; give"):
        await app.enqueue("k", {}, headers=headers)
    assert (await app.desk.ls()).letters == []


async def test_an_id_that_is_no_uuid_is_refused_with_a_way_out(app):
    with pytest.raises(DraftError, match="give a name of your own as idempotency_key"):
        app.draft("k", {}, id="wf_abc123")


def test_the_sync_face_refuses_to_wait_for_itself(app):
    @app.handler("k")
    async def handle(order: dict):
        app.sync.enqueue("other", {})

    app.sync.enqueue("k", {}, policy="never")
    app.sync.run(until_idle=True)
    [letter] = app.sync.desk.ls("status:failed").letters
    assert "await the application itself" in letter.last_error
