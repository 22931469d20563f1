"""An engine in a process of its own, which a test kills: `python -m … BOOTSTRAP GRAPH [MODE]`, the graph as JSON."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from redrive.sources.kafka.config import KafkaConfig
from redrive.sources.pipeline.engine.pipeline import Pipeline
from redrive.sources.pipeline.graph.model import Graph

KAFKA = {
    "commit_interval_ms": 20, "session_timeout_ms": 6000, "poll_batch_size": 10,
    "settings": {"heartbeat.interval.ms": 200},
}  # fmt: skip
EXACTLY_ONCE = "exactly-once"
QUICK = {"transaction_timeout_ms": 2000, "session_timeout_ms": 3000}  # its successor waits for both


async def main(bootstrap: str, text: str, mode: str = "") -> None:
    graph, exact = msgspec.json.decode(text, type=Graph), mode == EXACTLY_ONCE
    kafka = KafkaConfig(bootstrap_servers=bootstrap, **{**KAFKA, **(QUICK if exact else {})})
    await Pipeline(graph, kafka, exactly_once=exact).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
