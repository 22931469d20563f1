"""What a test does to a pipeline from outside: a graph, documents, and a look at every topic."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from typing import Any

import msgspec
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from tests.sources.kafka.stage import BRISK, LIMIT, Stage, unique
from tests.sources.kafka.stage import until as soon

from redrive.sources.kafka.config import KafkaConfig
from redrive.sources.pipeline.engine.journey.streams import new_stream
from redrive.sources.pipeline.engine.pipeline import Pipeline
from redrive.sources.pipeline.graph.model import Graph
from redrive.sources.pipeline.protos.document_pb2 import DlqMessage, DoneRecord, PipeDoc, PipeStream

QUICK = {"initial_backoff": 0.001, "max_backoff": 0.01}


class Scene:
    """A graph of its own, and the outside view of its topics."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.env = f"{re.sub('[^a-z0-9]+', '-', name.lower())[:60]}-{unique()}"
        self.stage = Stage(bootstrap, name)

    def close(self) -> None:
        self.stage.close()

    def graph(self, *nodes: dict[str, Any], edges: Any = (), **options: Any) -> Graph:
        quick = [{**node, "dlq": {**QUICK, **node.get("dlq", {})}} for node in nodes]
        ways = [{"from": edge[0], "to": edge[1], **(edge[2] if len(edge) > 2 else {})} for edge in edges]
        return msgspec.convert({"env": self.env, "partitions": 2, "nodes": quick, "edges": ways, **options}, Graph)

    def kafka(self, **options: Any) -> KafkaConfig:
        brisk = {"commit_interval_ms": 50, "session_timeout_ms": 6000, "settings": BRISK}
        return KafkaConfig(bootstrap_servers=self.bootstrap, **{**brisk, **options})

    def pipeline(self, graph: Graph, *, exactly_once: bool = False, **options: Any) -> Pipeline:
        return Pipeline(graph, self.kafka(**options), exactly_once=exactly_once)

    # ------------------------------------------------------------------ documents

    def streams(self, graph: Graph, number: int, **document: Any) -> list[PipeStream]:
        node = graph.entries[0]
        return [
            new_stream(graph, node, PipeDoc(doc_id=f"doc-{n}", **document), stream_id=f"stream-{n}", now_ms=n)
            for n in range(number)
        ]

    def send(self, graph: Graph, number: int = 1, *, to: str = "", **document: Any) -> None:
        self.put(self.streams(graph, number, **document), to or f"in.{self.env}.{graph.entries[0].id}")

    def put(self, streams: list[PipeStream], topic: str) -> None:
        self.stage.produce(
            [{"key": each.stream_id.encode(), "value": each.SerializeToString()} for each in streams], topic=topic
        )

    # ------------------------------------------------------------------ topics

    def messages(self, topic: str) -> list[Any]:
        return self.stage.read(topic, **{"isolation.level": "read_committed"}) if self.has(topic) else []

    def has(self, topic: str) -> bool:
        return topic in self.stage.topics()

    def done(self) -> list[DoneRecord]:
        return [DoneRecord.FromString(each.value()) for each in self.messages(f"done.{self.env}")]

    def dead(self, node: str) -> list[DlqMessage]:
        return [DlqMessage.FromString(each.value()) for each in self.messages(f"dlq.{self.env}.{node}")]

    def quarantined(self, node: str) -> list[DlqMessage]:
        return [DlqMessage.FromString(each.value()) for each in self.messages(f"quarantine.{self.env}.{node}")]

    def outputs(self, topic: str) -> list[PipeStream]:
        return [PipeStream.FromString(each.value()) for each in self.messages(topic)]

    def resize(self, topic: str, size: int) -> None:
        """Let *topic* take messages of up to *size* bytes."""
        change = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
        self.stage.admin.incremental_alter_configs([resource])[resource].result(LIMIT)

    def committed(self, node: str, partitions: int = 2) -> int:
        """Return how many documents of a node's input topic are committed."""
        self.stage.group = f"redrive.{self.env}.{node}"
        if self.stage._asker is not None:
            self.stage._asker.close()
            self.stage._asker = None
        return sum(self.stage.committed(n, topic=f"in.{self.env}.{node}") or 0 for n in range(partitions))


@contextlib.asynccontextmanager
async def running(pipeline: Pipeline):
    """Run *pipeline* meanwhile, and stop it as its user would."""
    task = asyncio.create_task(pipeline.run())
    try:
        await started(pipeline, task)
        yield task
    finally:
        pipeline.stop()
        await asyncio.wait_for(task, LIMIT)


async def started(pipeline: Pipeline, task: asyncio.Task[None]) -> None:
    """Wait until its nodes run: their topics exist then."""
    end = time.monotonic() + LIMIT
    while len(pipeline._runs) < len(pipeline.graph.nodes):
        if task.done():
            task.result()
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


async def until(condition: Any, limit: float = LIMIT) -> None:
    """Wait until *condition* holds."""
    await soon(condition, limit)
