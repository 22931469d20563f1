"""
Where every branch of every document is, seen from outside.

Owns the topics of a pipeline as a reader of committed messages sees them: read once, from their beginning, and then on
from where the last look ended. Knows no engine and no fault.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from redrive.sources.pipeline.protos.document_pb2 import DlqMessage, DoneRecord, PipeStream

if TYPE_CHECKING:
    from collections.abc import Iterable

SIDES = {"1of2": "left", "2of2": "right"}
_WAIT = 30.0  # seconds for the next message, or the end of a partition


class Branch(NamedTuple):
    """One branch of a document; "" before the fan-out."""

    stream_id: str
    name: str

    @property
    def number(self) -> int:
        """The number of its document."""
        return int(self.stream_id.rpartition("-")[2])


class Topics:
    """The inputs, the ends, the dead letters and the quarantined documents of *nodes* in the environment *env*."""

    def __init__(self, bootstrap: str, env: str, nodes: Iterable[str]) -> None:
        self._reader = Consumer({
            "bootstrap.servers": bootstrap, "group.id": f"view-{env}", "enable.partition.eof": True,
            "enable.auto.commit": False, "isolation.level": "read_committed", "fetch.wait.max.ms": 10,
        })  # fmt: skip
        lanes = ("in", "dlq", "quarantine")
        self._lanes = {f"done.{env}": "done"} | {f"{lane}.{env}.{node}": lane for lane in lanes for node in nodes}
        self._next: dict[tuple[str, int], int] = {}
        self.sent: Counter[tuple[str, Branch, str]] = Counter()  # by topic, branch and replay
        self.places: dict[str, set[Branch]] = {"done": set(), "in": set(), "dlq": set(), "quarantine": set()}
        self.ends: list[DoneRecord] = []
        self.sent_on = 0  # messages of engines: into every lane but the input of the first node
        self._entry = f"in.{env}.{next(iter(nodes))}"

    def close(self) -> None:
        self._reader.close()

    def look(self) -> None:
        """Take in what is new."""
        self._find_partitions()
        self._reader.assign([TopicPartition(*place, offset) for place, offset in self._next.items()])
        left = set(self._next)
        while left:
            message = self._reader.poll(_WAIT)
            if message is None:
                raise TimeoutError(f"these topics cannot be read: {sorted(left)[:3]}")
            place = message.topic(), message.partition()
            if message.error() is None:
                self._next[place] = message.offset() + 1
                self._take_in(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                left.discard(place)

    def _find_partitions(self) -> None:
        """A DLQ topic is made when an engine begins, so there may be new ones."""
        known = self._reader.list_topics(timeout=_WAIT).topics
        for topic in self._lanes:
            for number in known[topic].partitions if topic in known else ():
                self._next.setdefault((topic, number), 0)

    def _take_in(self, message: Any) -> None:
        lane = self._lanes[message.topic()]
        if lane == "done":
            done = DoneRecord.FromString(message.value())
            self.ends.append(done)
            self._note(message, lane, Branch(done.stream_id, done.branch), "")
        else:
            kind = PipeStream.FromString(message.value()) if lane == "in" else DlqMessage.FromString(message.value())
            stream = kind if isinstance(kind, PipeStream) else kind.stream
            self._note(message, lane, Branch(stream.stream_id, stream.branch), stream.replay_id)

    def _note(self, message: Any, lane: str, branch: Branch, replay: str) -> None:
        self.places[lane].add(branch)
        self.sent_on += message.topic() != self._entry
        self.sent[message.topic(), branch, replay] += 1

    @property
    def repeats(self) -> Counter[str]:
        """How many messages each lane has more than it needs: a crash may repeat a branch."""
        found: Counter[str] = Counter()
        for (topic, *_), times in self.sent.items():
            found[self._lanes[topic]] += times - 1
        return found

    def put_aside(self, lane: str) -> set[Branch]:
        """Return the branches in *lane*; a document that was not split yet stands for both of its branches."""
        found = self.places[lane]
        whole = {Branch(each.stream_id, side) for each in found if not each.name for side in SIDES}
        return {each for each in found if each.name} | whole
