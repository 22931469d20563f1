"""
Our engine in the pipeline's benchmark.

Owns what a pipeline does in each part: documents through nodes in a row, two nodes of which one module may be down,
and many documents through one node. The documents are in the topic before the engine starts, or arrive at a steady
rate. Each case reads the topics at the end, and fails unless each document is there once. Knows no bar.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.letters import resident
from benchmarks.pipeline_cases import document_of, speed
from redrive.sources.kafka.config import KafkaConfig
from redrive.sources.pipeline import Edge, Graph, Node, Pipeline
from redrive.sources.pipeline.engine.journey.streams import new_stream
from redrive.sources.pipeline.engine.topics import prepare

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_HEALTHY, _OTHER = "healthy", "other"
_PART = 0.01  # seconds between two sends of a steady rate


class NotHandled(Exception):
    """A document is missing in a topic, or there twice."""


# ---------------------------------------------------------------------- nodes in a row


def drain(_folder: Path, **arguments: Any) -> dict[str, Any]:
    """Take the documents of a full topic through so many nodes."""
    return asyncio.run(_drain(**arguments))


async def _drain(
    target: str, bootstrap: str, documents: int, concurrency: int, name: str, nodes: int
) -> dict[str, Any]:
    named = [f"n{number}" for number in range(nodes)]
    graph = Graph(
        env=name, nodes=tuple(Node(id=each, module=target, concurrency=concurrency) for each in named),
        edges=tuple(Edge(source=one, target=two) for one, two in itertools.pairwise(named)),
    )  # fmt: skip
    memory: list[float] = []
    prepare(graph, KafkaConfig(bootstrap_servers=bootstrap))
    _fill(graph, bootstrap, documents)
    async with _running(graph, bootstrap) as pipeline:
        await _until(lambda: pipeline.counts[named[0]].received > 0)
        began, cpu = time.perf_counter(), time.process_time()
        watching = asyncio.create_task(_watch_memory(memory))
        await _until(lambda: pipeline.counts[named[-1]].ended >= documents and _is_confirmed(pipeline))
        found = speed(began, cpu, documents, documents * nodes)
        watching.cancel()
    _check(_stamps(bootstrap, f"done.{name}"), documents)
    return {**found, "peak_mb": max(memory, default=0.0), "growth_mb": _growth(memory, documents)}


async def _watch_memory(samples: list[float]) -> None:
    while True:
        samples.append(resident())
        await asyncio.sleep(0.5)


def _growth(samples: list[float], documents: int) -> float:
    """Return the slope of a line through the second half of *samples*, in MB for 100,000 documents."""
    half = samples[len(samples) // 2 :]
    if len(half) < 2:
        return 0.0
    return statistics.linear_regression(range(len(half)), half).slope * len(samples) / documents * 100_000


# ---------------------------------------------------------------------- a module that is down


def beside(_folder: Path, **arguments: Any) -> dict[str, Any]:
    """Send documents to two nodes at a steady rate; return how long those of the healthy one took."""
    return asyncio.run(_beside(**arguments))


async def _beside(
    target: str, bootstrap: str, documents: int, rate: int, name: str, other: str, *, is_down: bool
) -> dict[str, Any]:
    nodes = (Node(id=_HEALTHY, module=target, concurrency=16), Node(id=_OTHER, module=other, concurrency=16))
    graph = Graph(env=name, nodes=nodes, edges=())
    async with _running(graph, bootstrap) as pipeline:
        await asyncio.to_thread(_send_steadily, graph, bootstrap, documents, rate)
        counts = pipeline.counts
        await _until(lambda: counts[_HEALTHY].ended >= documents)
        await _until(lambda: counts[_OTHER].dead + counts[_OTHER].ended >= documents and _is_confirmed(pipeline))
    sent, done = _stamps(bootstrap, f"in.{name}.{_HEALTHY}"), _stamps(bootstrap, f"done.{name}")
    _check(sent, documents)
    took = {key: at - sent[key] for key, at in done.items() if key in sent}
    _check(took, documents)
    elsewhere = _stamps(bootstrap, f"dlq.{name}.{_OTHER}") if is_down else done.keys() - sent.keys()
    _check(elsewhere, documents)
    late = sorted(sorted(took, key=sent.__getitem__)[documents // 5 :], key=took.__getitem__)  # all parts are warm
    return {"p50_ms": took[late[len(late) // 2]], "p99_ms": took[late[len(late) * 99 // 100]]}


def _send_steadily(graph: Graph, bootstrap: str, documents: int, rate: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    due = time.perf_counter()
    for number in range(documents):
        for node in graph.nodes:
            _produce(producer, graph, node, number)
        due += 1 / rate
        if due - time.perf_counter() > _PART:
            producer.poll(0)
            time.sleep(max(0.0, due - time.perf_counter()))
    producer.flush()


# ---------------------------------------------------------------------- an engine and its topics


@asynccontextmanager
async def _running(graph: Graph, bootstrap: str) -> AsyncIterator[Pipeline]:
    """Run *graph* with default settings; give the pipeline as soon as each node has its partitions."""
    pipeline = Pipeline(graph, KafkaConfig(bootstrap_servers=bootstrap))
    task = asyncio.create_task(pipeline.run())
    await _until(lambda: len(pipeline._runs) == len(graph.nodes) and _is_assigned(pipeline))  # noqa: SLF001 - no outsider needs it
    try:
        yield pipeline
    finally:
        pipeline.stop()
        await task


async def _until(holds: Any) -> None:
    while not holds():  # noqa: ASYNC110 - the engine tells nobody
        await asyncio.sleep(0.002)


def _is_assigned(pipeline: Pipeline) -> bool:
    return all(run.consumer.assigned for run in pipeline._runs.values())  # noqa: SLF001


def _is_confirmed(pipeline: Pipeline) -> bool:
    outputs = pipeline._outputs  # noqa: SLF001
    return outputs is None or not outputs._open  # noqa: SLF001


def _fill(graph: Graph, bootstrap: str, documents: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})
    for number in range(documents):
        _produce(producer, graph, graph.nodes[0], number)
        producer.poll(0)
    producer.flush()


def _produce(producer: Producer, graph: Graph, node: Node, number: int) -> None:
    stream = new_stream(graph, node, document_of(number), stream_id=f"{node.id}-{number}", now_ms=1)
    while True:
        try:
            producer.produce(f"in.{graph.env}.{node.id}", key=stream.stream_id, value=stream.SerializeToString())
        except BufferError:
            producer.poll(0.1)  # its queue is full
        else:
            return


def _stamps(bootstrap: str, topic: str) -> dict[bytes, int]:
    """Return when each key of *topic* was written, in ms; raise NotHandled if one is there twice."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    found: dict[bytes, int] = {}
    try:
        parts = [TopicPartition(topic, each, 0) for each in consumer.list_topics(topic, 10).topics[topic].partitions]
        total = sum(consumer.get_watermark_offsets(part, 10)[1] for part in parts)
        consumer.assign(parts)
        read = 0
        while read < total:
            for message in consumer.consume(min(10_000, total - read), 10):
                found[message.key()] = message.timestamp()[1]
                read += 1
    finally:
        consumer.close()
    if len(found) != total:
        raise NotHandled(f"{topic} has {total} messages of {len(found)} documents")
    return found


def _check(found: Any, documents: int) -> None:
    if len(found) != documents:
        raise NotHandled(f"{len(found)} of {documents} documents were found")
