"""The same application for code that cannot await: Flask, Django, scripts; threads and forks."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.engine.starting import PATIENCE

from redrive import Redrive, RetryPolicy, Status
from redrive.errors import LetterNotFound, QueueFull


@pytest.fixture(params=["memory", "sqlite"])
def app(request, folder):
    app = Redrive("memory://" if request.param == "memory" else f"sqlite:///{folder}/redrive.db")
    yield app
    app.sync.close()


def test_plain_code_enqueues_looks_and_replays(app):
    broken = [True]

    @app.handler("order.created", policy=RetryPolicy.NEVER)
    def ship(order: dict):
        if broken:
            raise OSError("down")

    receipt = app.sync.enqueue("order.created", {"order": 17}, idempotency_key="order-17")
    assert app.sync.enqueue("order.created", {}, idempotency_key="order-17").duplicate
    app.sync.run(until_idle=True)
    assert app.sync.desk.show(receipt.id).status is Status.FAILED
    broken.clear()
    app.sync.desk.replay(receipt.id, reason="fixed")
    app.sync.run(until_idle=True)
    assert [letter.status for letter in app.sync.desk.ls().letters] == [Status.DELIVERED]


def test_many_threads_may_enqueue_at_once(app):
    app.add_handler("order.created", lambda order: None)
    with ThreadPoolExecutor(8) as threads:
        receipts = list(threads.map(lambda n: app.sync.enqueue("order.created", {"n": n}), range(100)))
    assert len({receipt.id for receipt in receipts}) == 100
    assert app.sync.desk.stats().books["pending"] == 100


def test_errors_come_back_as_they_are(app):
    app.queue("default", max_size=1)
    app.sync.enqueue("order.created", {})
    with pytest.raises(QueueFull):
        app.sync.enqueue("order.created", {})
    with pytest.raises(LetterNotFound):
        app.sync.desk.show("01890000-0000-7000-8000-000000000001")


async def test_it_works_in_the_thread_of_a_running_loop(app):
    app.add_handler("order.created", lambda order: None)
    receipt = app.sync.enqueue("order.created", {})
    assert (await app.desk.show(receipt.id)).status is Status.PENDING
    again = await app.enqueue("order.created", {})
    assert app.sync.desk.show(again.id).status is Status.PENDING


async def test_a_sync_handler_may_enqueue_the_next_letter(app):
    ran = []

    @app.handler("step")
    def step(number: int):
        ran.append(number)
        if number < 3:
            app.sync.enqueue("step", number + 1)

    await app.enqueue("step", 1)
    await asyncio.wait_for(app.run(until_idle=True), PATIENCE)
    assert ran == [1, 2, 3]


def test_a_worker_in_one_thread_is_fed_by_others(app):
    done = threading.Event()

    @app.handler("order.created")
    async def ship(order: dict):
        done.set()

    worker = threading.Thread(target=lambda: asyncio.run(app.run(signals=False)), daemon=True)
    worker.start()
    app.sync.enqueue("order.created", {})
    assert done.wait(PATIENCE)
    app.stop()
    worker.join(PATIENCE)
    assert not worker.is_alive()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_of_a_web_server_may_enqueue(folder):
    """What a preloading web server does: the application is used, then the process forks."""
    app = Redrive(f"sqlite:///{folder}/redrive.db")
    app.add_handler("order.created", lambda order: None)
    first = app.sync.enqueue("order.created", {"by": "parent"})
    pid = os.fork()
    if not pid:
        try:
            app.sync.enqueue("order.created", {"by": "child"})
        except BaseException:  # noqa: BLE001 - a child of pytest must not go on as pytest
            os._exit(1)
        os._exit(0)
    assert _exit_code(pid) == 0
    letters = app.sync.desk.ls().letters
    app.sync.close()
    assert sorted(letter.payload for letter in letters) == [b'{"by":"child"}', b'{"by":"parent"}']
    assert len({letter.id for letter in letters}) == 2
    assert first.id in {letter.id for letter in letters}


def _exit_code(pid: int) -> int:
    """Wait for the child, and end it if it hangs."""
    timer = threading.Timer(PATIENCE, os.kill, (pid, 9))
    timer.start()
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        timer.cancel()


def test_the_desk_may_be_the_first_to_come(app):
    assert app.sync.desk.stats().books["enqueued"] == 0


async def test_an_application_may_be_used_again_after_it_was_closed(app):
    receipt = await app.enqueue("order.created", {})
    await app.close()
    assert (await app.desk.show(receipt.id)).status is Status.PENDING
