"""
A real Kafka broker for tests, benchmarks and examples.

Owns the start as a direct child on loopback in a temporary folder, and the end: nothing is left
behind, also when we are killed. What it finds on the disk is made by `kafka_files`.
Run by itself, `python -m tests.servers.kafka` is a broker until it is interrupted.
"""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.servers import fetching, kafka_files
from tests.servers.lending import Missing
from tests.servers.ports import free_port, is_free

if TYPE_CHECKING:
    from collections.abc import Iterator

# With them, a test may forbid things of its own topics and groups; everything else stays allowed.
RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
STARTING = 180.0  # seconds, on a machine that does much else
BEGINNINGS = 3  # ports that are tried: a program that claims none may take one before the broker listens
_PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None).prctl  # looked up here: between fork and exec a lock of the loader may be held for good


class Ended(Missing):
    """It ended by itself while it started: its ports are in use, or its properties are wrong."""


class Broker:
    """One node, broker and controller, in KRaft mode; use it as a context manager."""

    def __init__(self, node: int = 1, **properties: object) -> None:
        self.node = node
        self._move()
        self.folder = Path(tempfile.mkdtemp(prefix="redrive-kafka-"))
        self._properties = properties
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def _begin(self) -> None:
        """Start it; if it ends at once, start it again on other ports."""
        for left in reversed(range(BEGINNINGS)):
            try:
                self.format()
                self.start()
            except Ended:
                if not left:
                    raise
            else:
                return
            shutil.rmtree(self.folder / "data")
            self._move()

    def _move(self) -> None:
        """Take ports that nobody uses."""
        self.port, self.controller = free_port(), free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def format(self, voters: str = "") -> None:
        """Write its configuration and an empty log: alone, or as one of the *voters* of a cluster."""
        self._configure(voters or f"{self.node}@127.0.0.1:{self.controller}")
        kafka_files.format_log(self.folder / "data", self.node, Path(self._config))

    def start(self) -> None:
        """Start, or start again, on the same port and data; return once it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start it, and do not wait; it dies with the thread that calls this."""
        self._process = self._java(kafka_files.with_classes())

    def teach(self, classes: Path) -> None:
        """Run it once from its start to an orderly end, and keep the classes that it loaded for those who follow."""
        self._process = self._java(kafka_files.keeping_classes(classes))
        self.wait()
        self._process.terminate()
        self._process.wait(STARTING)

    def wait(self) -> None:
        """Return once it answers; raise Ended, or Missing, with what it said last, if it does not."""
        end = time.monotonic() + STARTING
        while not self._answers():
            if self._process is None or self._process.poll() is not None:
                raise Ended(f"the broker ended with {self._code()} while it started{self._last_words()}")
            if time.monotonic() > end:
                raise Missing(f"the broker did not answer within {STARTING} s{self._last_words()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Let it hold its connections and answer nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its data."""
        with contextlib.suppress(ProcessLookupError):
            self.thaw()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------------ within

    @property
    def _config(self) -> str:
        return str(self.folder / "server.properties")

    @property
    def _log(self) -> Path:
        return self.folder / "broker.log"

    def _code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def _last_words(self) -> str:
        """Return what is known of a failure; it has no logger, so that its log does not say that a port is taken."""
        taken = [port for port in (self.port, self.controller) if not is_free(port)]
        return f" (ports in use: {taken}): {self._log.read_text(errors='replace')[-3000:]}"

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _configure(self, voters: str) -> None:
        listener = f"PLAINTEXT://127.0.0.1:{self.port}"
        lines: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": self.node,
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener},CONTROLLER://127.0.0.1:{self.controller}",
            "advertised.listeners": listener,
            "log.dirs": self.folder / "data",
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,  # what a dead producer left open
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.backoff.ms": 200,  # compacted topics are compacted while a test looks
            "group.min.session.timeout.ms": 500,
            "group.consumer.min.session.timeout.ms": 500,
            "group.consumer.min.heartbeat.interval.ms": 100,
            "group.consumer.heartbeat.interval.ms": 200,
            **{name.replace("_", "."): value for name, value in self._properties.items()},
        }
        Path(self._config).write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    def _java(self, options: tuple[str, ...]) -> subprocess.Popen[bytes]:
        command = kafka_files.command("kafka.Kafka", self._config, options=options)
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - nothing but one system call
            )

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - only where a broker runs
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415

        with contextlib.suppress(OSError, KafkaException), socket.create_connection(("127.0.0.1", self.port), 1):
            metadata = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=5)
            return bool(metadata.brokers)
        return False  # it does not listen, or does not answer yet


@contextlib.contextmanager
def lent() -> Iterator[str]:
    """Run the broker that all tests of a run share; each keeps to topics and groups of its own."""
    _prepare_classes()
    with Broker(**RULES, log_segment_delete_delay_ms=1000) as broker:
        yield broker.bootstrap


def _prepare_classes() -> None:
    """Let one broker, on each machine, keep its classes: all others start in half the time."""
    kept = kafka_files.classes()
    if kept is None or kept.exists():
        return
    broker = Broker()
    try:
        broker.format()
        with fetching.alone():
            if not kept.exists():
                broker.teach(broker.folder / "classes")
                _keep(broker.folder / "classes", kept)
    finally:
        broker.close()


def _keep(made: Path, kept: Path) -> None:
    """Put *made* where others find it, whole; nothing, if nothing came of it, so that nobody tries again."""
    new = kept.with_suffix(".new")
    shutil.copyfile(made, new) if made.exists() else new.touch()
    new.rename(kept)


def _die_with_parent() -> None:
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    with Broker() as broker:
        print(broker.bootstrap, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
    sys.exit(0)
