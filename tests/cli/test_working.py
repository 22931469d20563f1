from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from tests.cli.pipes import next_line
from tests.desk.conftest import failure

from redrive.cli.run.supervisor import Supervisor
from redrive.core.letter import Status
from redrive.core.moves import Move
from redrive.core.policy import RetryPolicy

SHOP = """
import os, pathlib, threading
from redrive import Redrive, Reject, RetryPolicy

app = Redrive()
number = 17

@app.handler("order.created")
async def ship(order: dict) -> None:
    if order.get("bad"):
        raise Reject("a bad order")

@app.handler("bomb", queue="bombs")
async def explode(order: dict) -> None:
    fuse = pathlib.Path("fuse")
    if fuse.exists():
        fuse.unlink()
        os._exit(3)

@app.handler("swamp", queue="swamps", timeout=0.05, policy=RetryPolicy.NEVER)
def hang(order: dict) -> None:
    threading.Event().wait()
"""


ENDLESS = """
import asyncio, threading
from redrive import Redrive

app = Redrive(drain_seconds=0.2)

@app.handler("swallow")
async def swallow(order: dict) -> None:
    print("began", flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

@app.handler("thread")
async def in_a_thread(order: dict) -> None:
    print("began", flush=True)
    await asyncio.to_thread(threading.Event().wait)
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """An application beside the file, which is found because commands are run there."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "endless.py").write_text(ENDLESS)
    (tmp_path / "broken.py").write_text("import no_such_module_anywhere")
    monkeypatch.setenv("REDRIVE_LEASE_SECONDS", "1")
    monkeypatch.setenv("REDRIVE_SWEEP_SECONDS", "0.1")


def run(redrive, *arguments: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "redrive.cli", "--url", redrive.url, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)


@pytest.mark.slow
def test_a_worker_handles_everything_and_ends_when_idle(redrive, shop):
    redrive("enqueue", "order.created", "{}")
    redrive("enqueue", "order.created", '{"bad": true}')

    done = run(redrive, "worker", "shop:app", "--until-idle")

    assert done.returncode == 0, done.stderr
    assert sorted(redrive.statuses().values()) == ["delivered", "failed"]


@pytest.mark.slow
def test_a_canary_is_waited_for_and_its_outcome_decides_whether_to_go_on(redrive, shop):
    for payload in ["{}", "{}", '{"bad": true}']:
        redrive("enqueue", "order.created", payload)

    async def give_up(mill):
        for _ in range(3):
            await mill.settle("order.created", Move(Status.FAILED, "exhausted", failure=failure()))

    redrive.fill(give_up)
    command = [sys.executable, "-m", "redrive.cli", "--url", redrive.url, "worker", "shop:app"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as worker:
        try:
            good = redrive("replay", "-q", "kind:order.*", "--canary", "2", "--wait-seconds", "240", "--yes")
            bad = redrive.json("replay", "-q", "kind:order.*", "--wait-seconds", "240", "--yes", code=1)
        finally:
            worker.terminate()

    *_, told, rest = good.stdout.splitlines()
    assert (told, rest) == ("2 delivered", "go on with the rest: redrive replay -q 'kind:order.* status:failed'")
    outcome = {"plan": bad["plan"], "delivered": 0, "failed": 1, "waiting": 0, "gone": 0}
    assert (bad["acted"], bad["outcome"]) == (1, outcome)


@pytest.mark.slow
def test_a_worker_that_ends_when_idle_names_what_it_leaves(redrive, shop):
    redrive("enqueue", "typo.kind", "{}")
    redrive("enqueue", "typo.kind", "{}")
    redrive("enqueue", "order.created", "{}")
    redrive("queues", "pause", "default", "--reason", "incident 4711")

    done = run(redrive, "worker", "shop:app", "--until-idle")
    told = run(redrive, "worker", "shop:app", "--until-idle", "--json")

    assert "nothing is left to do" not in done.stdout
    orphans, paused = [line for line in done.stdout.splitlines() if line.startswith("  ")][::-1]
    assert "2 letters of typo.kind in queue default" in orphans
    assert "no live worker takes typo.kind from queue default" in orphans
    assert "1 letter of order.created in queue default: queue default is paused by" in paused
    assert "incident 4711" in paused
    assert "no live worker" not in paused
    assert len(json.loads(told.stdout)["left"]) == 2


@pytest.mark.slow
def test_a_worker_keeps_to_the_queues_it_was_given(redrive, shop):
    redrive("enqueue", "order.created", "{}")
    redrive("enqueue", "bomb", "{}", "--queue", "bombs")

    run(redrive, "worker", "shop:app", "--until-idle", "--queue", "bombs")

    assert sorted(redrive.statuses().values()) == ["delivered", "pending"]


@pytest.mark.slow
def test_a_worker_killed_by_its_letter_is_started_again(redrive, shop, tmp_path):
    (tmp_path / "fuse").touch()
    redrive("enqueue", "bomb", "{}", "--queue", "bombs")

    done = run(redrive, "worker", "shop:app", "--until-idle", "--processes", "2")

    assert done.returncode == 0, done.stderr
    assert "ended with code 3" in done.stderr
    assert list(redrive.statuses().values()) == ["delivered"]


@pytest.mark.slow
def test_a_worker_with_too_many_hanging_threads_asks_to_be_started_anew(redrive, shop, monkeypatch):
    monkeypatch.setenv("REDRIVE_DRAIN_SECONDS", "0")
    for _ in range(9):
        redrive("enqueue", "swamp", "{}", "--queue", "swamps")

    done = run(redrive, "worker", "shop:app", "--until-idle")

    assert (done.returncode, done.stdout) == (75, ""), done.stderr
    assert "too many of its threads hang" in done.stderr


@pytest.mark.slow
def test_a_worker_that_was_told_to_stop_says_so(redrive, shop):
    redrive("enqueue", "order.created", "{}", "--delay", "3600")
    command = [sys.executable, "-m", "redrive.cli", "--url", redrive.url, "worker", "shop:app", "--until-idle"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        wait_for_a_worker(redrive)
        worker.send_signal(signal.SIGTERM)
        said, _ = worker.communicate(timeout=300)

    assert (said, worker.returncode) == ("stopped\n", 0)


def wait_for_a_worker(redrive) -> None:
    deadline = time.monotonic() + 180
    while not redrive.json("stats")["workers"]:
        assert time.monotonic() < deadline


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shop", "module:attribute"),
        ("nowhere:app", "there is no module 'nowhere'"),
        ("shop:nothing", "has no 'nothing'"),
        ("shop:number", "it is a int, not a Redrive application"),
        ("broken:app", "no_such_module_anywhere"),
    ],
)
def test_an_application_that_cannot_be_run_is_refused(redrive, shop, name, message):
    done = run(redrive, "worker", name)

    assert done.returncode == 1
    assert message in done.stderr


def test_a_worker_without_an_application_is_a_usage_error(redrive):
    assert "which application?" in redrive("worker", code=2).stderr


CHILD = """
import os, pathlib, sys
turn = pathlib.Path({folder!r}) / f"turn-{{len(os.listdir({folder!r}))}}-{{os.getpid()}}"
turn.touch()
sys.exit(0 if len(os.listdir({folder!r})) >= {enough} else 9)
"""


async def test_processes_that_die_are_started_again_until_they_end_well(tmp_path, capfd):
    folder = tmp_path / "turns"
    folder.mkdir()
    command = [sys.executable, "-c", CHILD.format(folder=str(folder), enough=4)]

    code = await Supervisor(command, until_idle=True, rests=RetryPolicy.constant(0.01)).run(2)

    assert code == 0
    assert len(list(folder.iterdir())) >= 4
    assert "ended with code 9" in capfd.readouterr().err


async def test_a_process_that_has_just_ended_does_not_keep_the_word_from_the_others():
    class Process:
        def __init__(self, *, ended):
            self.ended, self.heard = ended, []

        def send_signal(self, number):
            if self.ended:
                raise ProcessLookupError
            self.heard.append(number)

    supervisor = Supervisor([], until_idle=False)
    processes = [Process(ended=True), Process(ended=False), Process(ended=True)]
    supervisor._running.update(processes)
    supervisor.stop()

    assert [process.heard for process in processes] == [[], [signal.SIGTERM], []]


STUBBORN = textwrap.dedent("""
    import os, signal, sys, time
    heard = []
    def hear(*_):
        heard.append(1)
        os.write(1, b"heard %d\\n" % len(heard))  # one write a line: two processes share the pipe
        if len(heard) == 2:
            sys.exit(0)
    signal.signal(signal.SIGTERM, hear)
    os.write(1, b"ready\\n")
    while True:
        time.sleep(0.05)  # not pause: a signal just before it would be heard with the next one
""")
SUPERVISE = """
import sys
from redrive.cli.run.supervisor import supervise
sys.exit(supervise({command!r}, 2, until_idle=False))
"""


@pytest.fixture
def supervised():
    script = SUPERVISE.format(command=[sys.executable, "-c", STUBBORN])
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, bufsize=0)
    assert [next_line(process.stdout) for _ in range(2)] == ["ready\n"] * 2
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_is_passed_on_and_so_is_the_second(supervised, number):
    supervised.send_signal(number)
    assert [next_line(supervised.stdout) for _ in range(2)] == ["heard 1\n"] * 2

    supervised.send_signal(number)
    assert [next_line(supervised.stdout) for _ in range(2)] == ["heard 2\n"] * 2
    assert supervised.wait(timeout=120) == 0


ORPHAN = textwrap.dedent("""
    import os, signal, sys, time
    from redrive.cli.run.supervisor import hold_lifeline
    signal.signal(signal.SIGTERM, lambda *_: (print("asked to stop", flush=True), os._exit(0)))
    hold_lifeline()
    print("ready", os.getpid(), flush=True)
    while True:
        time.sleep(0.05)  # not pause: a signal just before it would be heard with the next one
""")


def test_workers_stop_when_their_supervisor_is_killed():
    script = SUPERVISE.format(command=[sys.executable, "-c", ORPHAN]).replace(", 2,", ", 1,")
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, bufsize=0)
    try:
        assert next_line(process.stdout).startswith("ready")
        os.kill(process.pid, signal.SIGKILL)
        assert next_line(process.stdout) == "asked to stop\n"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "said"), [("swallow", "endless:swallow"), ("thread", "threads that handlers started")]
)
def test_a_worker_ends_without_a_handler_that_will_not_stop_and_says_so(redrive, shop, kind, said):
    redrive("enqueue", kind, "{}")
    command = [sys.executable, "-m", "redrive.cli", "--url", redrive.url, "worker", "endless:app"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as worker:
        try:
            assert next_line(worker.stdout) == "began\n"
            worker.send_signal(signal.SIGTERM)
            _, log = worker.communicate(timeout=120)
        finally:
            worker.kill()

    assert worker.returncode == 0, log.decode()
    assert said in log.decode()
    [letter] = redrive.json("ls")["letters"]
    assert (letter["status"], letter["attempts"], letter["losses"]) == ("pending", 0, 0)
