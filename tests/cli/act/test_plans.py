"""Plans from the command line: listed, paused, resumed, halted; killed processes leave nothing half done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from redrive.desk.act import plan as plans

PATIENCE = 120.0  # seconds, on a machine that does much else
SHOP = """
from redrive import Redrive

app = Redrive(sweep_seconds=0.2)

@app.handler("order.created")
async def ship(order: dict) -> None:
    pass
"""


@pytest.fixture
def many(redrive, tmp_path):
    """Sixty dead letters, and an application that handles them."""
    (tmp_path / "plan_shop.py").write_text(SHOP)

    async def work(mill):
        return [await mill.failed() for _ in range(60)]

    return redrive.fill(work)


def kept(redrive, query: str = "status:failed", **asked) -> str:
    async def work(mill):
        return (await plans.start(mill.store, "replay", query, by="ana", **asked)).id

    return redrive.fill(work)


def shown(redrive, plan: str) -> dict:
    return redrive.json("plan", "show", plan)


def wait_for(redrive, plan: str, happened) -> dict:
    end = time.monotonic() + PATIENCE
    while not happened(found := shown(redrive, plan)):
        assert found["state"] != "done", f"the plan has ended before: {found}"
        assert time.monotonic() < end, f"it never happened: {found}"
    return found


def cycles(redrive, ids: list[str]) -> set[int]:
    listed = {one["id"]: one["cycles"] for one in redrive.json("ls", "-n", "1000")["letters"]}
    return {listed[one] for one in ids}


@contextmanager
def process(redrive, *arguments: str):
    command = [sys.executable, "-m", "redrive.cli", "--url", redrive.url, *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        try:
            yield started
        finally:
            started.kill()


def test_plans_are_listed_and_shown(redrive, failures):
    first, second = kept(redrive, reason="fixed"), kept(redrive, "kind:mail.*", limit=1, rate=5.0)
    assert [one["id"] for one in redrive.json("plan", "ls")["plans"]] == [second, first]
    assert [one["id"] for one in redrive.json("plan", "ls", "-n", "1")["plans"]] == [second]
    found = shown(redrive, second)
    assert (found["verb"], found["state"], found["acted"], found["limit"], found["rate"]) == (
        "replay", "running", 0, 1, 5.0
    )  # fmt: skip
    assert "running" in redrive("plan", "ls").stdout
    assert "created_at" in redrive("plan", "show", first).stdout


def test_a_plan_is_paused_resumed_run_and_halted(redrive, failures):
    plan = kept(redrive)
    assert redrive.json("plan", "pause", plan, "--reason", "look first")["state"] == "paused"
    assert [one["id"] for one in redrive.json("plan", "ls", "--state", "paused")["plans"]] == [plan]
    assert "no worker runs now" in redrive("plan", "resume", plan).stderr
    done = redrive.json("plan", "run", plan)
    assert (done["acted"], done["done"], done["state"]) == (5, True, "done")
    assert "it is done" in redrive("plan", "halt", plan, code=1).stderr

    other = kept(redrive, "kind:*")
    assert redrive.json("plan", "halt", other)["state"] == "halted"
    assert "it is halted" in redrive("plan", "run", other, code=1).stderr
    verbs = [one["verb"] for one in redrive.json("audit")["entries"]]
    assert verbs[:2] == ["plan halt", "plan replay"]


def test_a_plan_that_is_not_there_and_a_state_that_is_none_are_refused(redrive):
    for verb in ("show", "run", "pause", "resume", "halt"):
        assert "no plan has the id 'nope'" in redrive("plan", verb, "nope", code=1).stderr
    assert "'tired' is no state of a plan" in redrive("plan", "ls", "--state", "tired", code=2).stderr
    assert "no plans match" in redrive("plan", "ls").stdout


def test_detach_does_not_wait(redrive, failures):
    told = redrive("replay", "-q", "kind:order.created", "--yes", "--detach")
    assert "no worker runs now" in told.stderr
    [plan] = redrive.json("plan", "ls")["plans"]
    assert (plan["state"], plan["acted"]) == ("running", 0)
    assert redrive.json("plan", "run", plan["id"])["acted"] == 3
    refused = redrive("replay", failures[0][0], "--detach", code=2).stderr
    assert "--detach leaves a plan to workers" in " ".join(refused.split())


@pytest.mark.slow
def test_a_worker_goes_on_when_the_caller_is_killed(redrive, many):
    with process(redrive, "worker", "plan_shop:app"):
        redrive.until(lambda books: redrive.json("stats")["workers"])
        with process(redrive, "replay", "-q", "status:failed", "--rate", "10", "--yes") as caller:
            while not (found := redrive.json("plan", "ls")["plans"]):
                assert caller.poll() is None
            plan = found[0]["id"]
            held = wait_for(redrive, plan, lambda found: found["holder"])
            assert not held["holder"].startswith("desk-")
            os.kill(caller.pid, signal.SIGKILL)
        done = wait_for(redrive, plan, lambda found: found["state"] == "done")
    assert done["acted"] == 60
    assert cycles(redrive, many) == {1}


@pytest.mark.slow
def test_another_process_goes_on_when_the_worker_is_killed(redrive, many):
    plan = kept(redrive, rate=10.0)
    with process(redrive, "worker", "plan_shop:app") as worker:
        wait_for(redrive, plan, lambda found: found["acted"])
        os.kill(worker.pid, signal.SIGKILL)
    left = shown(redrive, plan)
    assert (left["state"], left["acted"] < 60) == ("running", True)
    with process(redrive, "worker", "plan_shop:app"):
        done = wait_for(redrive, plan, lambda found: found["state"] == "done")
    assert done["acted"] == 60
    assert cycles(redrive, many) == {1}


@pytest.mark.slow
def test_the_caller_goes_on_when_the_worker_is_killed(redrive, many):
    with process(redrive, "worker", "plan_shop:app") as worker:
        redrive.until(lambda books: redrive.json("stats")["workers"])
        with process(redrive, "replay", "-q", "status:failed", "--rate", "10", "--yes") as caller:
            while not (found := redrive.json("plan", "ls")["plans"]):
                assert caller.poll() is None
            wait_for(redrive, found[0]["id"], lambda found: found["holder"])
            os.kill(worker.pid, signal.SIGKILL)
            assert caller.wait(60) == 0
    done = shown(redrive, found[0]["id"])
    assert (done["acted"], done["state"]) == (60, "done")
    assert cycles(redrive, many) == {1}
