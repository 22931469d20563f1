"""
kill -9 of engines and modules at random moments, while documents go through five nodes with a fan-out.

Owns the run and its judgement from outside: every branch of every document is at the end, in a DLQ or in quarantine;
histories are complete and in order; and after a replay of all dead letters, and of the quarantined ones, every branch
is at the end. How often a branch was sent twice is counted, not judged.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Self

import msgspec
from tests.servers.ports import free_port
from tests.sources.pipeline.scene import Scene
from tests.torture.nursery import ROOT
from tests.torture.runs.brokers.pipeline_module import is_bad_input, is_dead, is_refused
from tests.torture.runs.brokers.pipeline_view import SIDES, Branch, Topics

from redrive.sources.pipeline.admin.lanes.jobs import replay_job
from redrive.sources.pipeline.admin.lanes.lane_job import carry_out
from redrive.sources.pipeline.admin.lanes.letter_choice import EVERY_LETTER
from redrive.sources.pipeline.engine.topics import prepare
from redrive.sources.pipeline.protos.document_pb2 import STEP_STATUS_FAILURE, STEP_STATUS_SUCCESS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redrive.sources.pipeline.graph.model import Graph
    from redrive.sources.pipeline.protos.document_pb2 import DoneRecord

ENGINES, MODULES = 2, 2
NODES = ("parse", "left", "right", "join", "index")
EDGES = [("parse", "left"), ("parse", "right"), ("left", "join", {"transport": "grpc"}), ("right", "join"),
         ("join", "index")]  # fmt: skip
PATIENCE = 240.0  # seconds without progress, after which it is stuck
RETRIES = {"max_retries": 3, "initial_backoff": 0.02, "max_backoff": 0.2, "max_reprocess_count": 100}


class PipelineOutcome(msgspec.Struct, kw_only=True):
    """
    What a run came to; *ended*, *dead* and *quarantined* are branches, *repeats* are messages by lane.

    *letters* are the dead letters of *dead*: that of a document before the fan-out stands for two branches.
    """

    documents: int
    kills: int = 0
    ended: int = 0
    dead: int = 0
    letters: int = 0
    quarantined: int = 0
    replayed: int = 0
    readmitted: int = 0
    repeats: dict[str, int] = {}
    problems: list[str] = []


class Crew:
    """Engines and modules, each in a process of its own; use it as a context manager."""

    def __init__(self, scene: Scene, chance: random.Random, folder: Path) -> None:
        self.scene, self._chance, self._healed, self._log = scene, chance, folder / "healed", folder / "crew.log"
        self._ports = [free_port() for _ in range(MODULES)]
        target = "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in self._ports)
        nodes = [{"id": name, "module": target, "dlq": RETRIES} for name in NODES]
        self.graph: Graph = scene.graph(*nodes, edges=EDGES, partitions=4)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        prepare(self.graph, self.scene.kafka())
        self.complete()
        return self

    def __exit__(self, *_exc: object) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def complete(self) -> None:
        """Start those that do not run."""
        for number, port in enumerate(self._ports):
            self._keep(f"module-{number}", "tests.torture.runs.brokers.pipeline_module", str(port), str(self._healed))
        text = msgspec.json.encode(self.graph).decode()
        for number in range(ENGINES):
            self._keep(f"engine-{number}", "tests.sources.pipeline.engine.one_engine", self.scene.bootstrap, text)

    def heal(self) -> None:
        """Let the modules take what they refused so far."""
        self._healed.touch()

    def kill_one(self, kind: str = "") -> None:
        """End one of them, or one of a *kind*, as a power cut would, and start another in its place."""
        name = self._chance.choice(sorted(name for name in self._running if name.startswith(kind)))
        self._running[name].kill()
        self._running[name].wait()
        self.complete()
        if name.startswith("module"):
            self._await(self._ports[int(name.rpartition("-")[2])])

    def _await(self, port: int) -> None:
        """Wait until a module listens: with one instance down at a time, calls find the other."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.05)

    def _keep(self, name: str, module: str, *words: str) -> None:
        process = self._running.get(name)
        if process is None or process.poll() is not None:
            env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "GRPC_VERBOSITY": "NONE"}
            with self._log.open("ab") as log:
                self._running[name] = subprocess.Popen(
                    [sys.executable, "-m", module, *words], env=env, cwd=ROOT, stdout=log, stderr=log
                )


def at_random(bootstrap: str, folder: Path, documents: int, kills: int, seed: int) -> PipelineOutcome:
    """Send *documents* through the graph, kill *kills* engines and modules meanwhile, then replay the rest."""
    outcome, chance = PipelineOutcome(documents=documents, problems=[], repeats={}), random.Random(seed)
    scene = Scene(bootstrap, f"kills-{seed}")
    topics = Topics(bootstrap, scene.env, NODES)
    with closing(scene), closing(topics), Crew(scene, chance, folder) as crew:
        streams = scene.streams(crew.graph, documents)
        for round_ in range(kills):
            part = slice(documents * round_ // kills, documents * (round_ + 1) // kills)
            scene.put(streams[part], f"in.{scene.env}.parse")
            _work_goes_on(topics)
            time.sleep(chance.uniform(0.0, 0.3))  # a random moment
            crew.kill_one()
            outcome.kills += 1
        _settle(topics, outcome, lambda: _placed(topics))
        _judge_lanes(topics, outcome)
        crew.heal()
        _bring_home(crew, topics, outcome)
        _judge(scene, topics, outcome)
    return outcome


def _work_goes_on(topics: Topics) -> None:
    """Wait until an engine sends something: a kill while the group settles after the last one strikes nothing."""
    topics.look()
    before, end = topics.sent_on, time.monotonic() + PATIENCE
    while topics.sent_on == before and time.monotonic() < end:
        time.sleep(0.05)
        topics.look()


def _wanted(documents: int) -> set[Branch]:
    return {Branch(f"stream-{n}", side) for n in range(documents) for side in SIDES}


def _placed(topics: Topics) -> set[Branch]:
    """Return the branches that are at the end, in a DLQ or in quarantine."""
    return topics.places["done"] | topics.put_aside("dlq") | topics.put_aside("quarantine")


def _settle(topics: Topics, outcome: PipelineOutcome, look: Callable[[], set[Branch]]) -> None:
    """Wait until every branch is where *look* finds it, as long as there is progress."""
    best, since = -1, time.monotonic()
    while True:
        topics.look()
        missing = _wanted(outcome.documents) - look()
        if not missing or time.monotonic() - since > PATIENCE:
            break
        if len(missing) != best:
            best, since = len(missing), time.monotonic()
        time.sleep(0.5)
    if missing:
        outcome.problems.append(f"{len(missing)} branches are nowhere, such as {sorted(missing)[:3]}")


def _bring_home(crew: Crew, topics: Topics, outcome: PipelineOutcome) -> None:
    """Replay and readmit as operators do, while a module dies once more: what fails again is replayed again."""

    def ended() -> set[Branch]:
        first = not outcome.replayed
        outcome.replayed += _sent_again(crew, "dlq")
        outcome.readmitted += _sent_again(crew, "quarantine")
        if first:
            crew.kill_one("module")
        return topics.places["done"]

    _settle(topics, outcome, ended)


def _sent_again(crew: Crew, lane: str) -> int:
    """Send every letter of *lane*, that was not sent before, to the input topic of its node."""
    kafka, graph = crew.scene.kafka(), crew.graph
    jobs = [replay_job(graph, node, EVERY_LETTER, lane=lane) for node in graph.nodes]  # type: ignore[arg-type]  # a lane's name
    return sum(list(carry_out(kafka, job))[-1].sent for job in jobs)


# ---------------------------------------------------------------------- the judgement


def _judge_lanes(topics: Topics, outcome: PipelineOutcome) -> None:
    """Before anything is healed: what modules refuse for good is where it belongs."""
    dead, aside = topics.put_aside("dlq"), topics.put_aside("quarantine")
    outcome.dead, outcome.letters, outcome.quarantined = len(dead), len(topics.places["dlq"]), len(aside)
    every = _wanted(outcome.documents)
    bad = {each for each in every if is_bad_input(each.number, SIDES[each.name])}
    _blame(outcome, "neither in quarantine nor in the DLQ", bad - aside - dead)  # its calls may have met dead modules
    _blame(outcome, "in quarantine for nothing", aside - bad)
    lost = {each for each in every if is_dead(each.number, "join")} - dead
    _blame(outcome, "not in the DLQ", lost)


def _judge(scene: Scene, topics: Topics, outcome: PipelineOutcome) -> None:
    ended = topics.places["done"]
    outcome.ended, outcome.repeats = len(ended), dict(topics.repeats)
    _blame(outcome, "from nowhere", ended - _wanted(outcome.documents))
    for done in topics.ends:
        _judge_history(done, outcome)
    waiting = {name: left for name in NODES if (left := _waiting(scene, topics, name))}
    if waiting:
        outcome.problems.append(f"not committed: {waiting}")


def _judge_history(done: DoneRecord, outcome: PipelineOutcome) -> None:
    way = ["parse", SIDES.get(done.branch, "?"), "join", "index"]
    where, steps = f"{done.stream_id} {done.branch}", done.history
    if [step.node_id for step in steps] != way or list(done.processing_path) != way:
        outcome.problems.append(f"the history of {where} is {list(done.processing_path)}")
        return
    if [step.hop_number for step in steps] != [1, 2, 3, 4]:
        outcome.problems.append(f"the hops of {where} are out of order")
    times = [each.ToNanoseconds() for step in steps for each in (step.start_time, step.end_time)]
    if times != sorted(times):
        outcome.problems.append(f"the times of {where} are out of order")
    number = Branch(done.stream_id, done.branch).number
    said = [STEP_STATUS_FAILURE if is_refused(number, node) else STEP_STATUS_SUCCESS for node in way]
    if [step.status for step in steps] != said:
        outcome.problems.append(f"the outcomes of {where} are {[step.status for step in steps]}")


def _waiting(scene: Scene, topics: Topics, node: str) -> int:
    """Return how many messages of a node's input are not committed once a few seconds have passed."""
    sent = sum(times for (topic, *_), times in topics.sent.items() if topic == f"in.{scene.env}.{node}")
    end = time.monotonic() + 60.0
    while (left := sent - scene.committed(node, 4)) and time.monotonic() < end:
        time.sleep(0.2)
    return left


def _blame(outcome: PipelineOutcome, what: str, found: set[Branch]) -> None:
    if found:
        by_side = Counter(each.name for each in found)
        outcome.problems.append(f"{what}: {len(found)} branches ({dict(by_side)}), such as {sorted(found)[:3]}")
