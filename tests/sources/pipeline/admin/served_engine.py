"""An engine with its services in a process of its own, which a test kills: `python -m … BOOTSTRAP GRAPH ADDRESS`."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from redrive.sources.kafka.config import KafkaConfig
from redrive.sources.pipeline.admin.admin_desk import AdminDesk
from redrive.sources.pipeline.admin.service import AdminServer
from redrive.sources.pipeline.engine.pipeline import Pipeline
from redrive.sources.pipeline.graph.model import Graph


async def main(bootstrap: str, text: str, address: str) -> None:
    pipeline = Pipeline(msgspec.json.decode(text, type=Graph), KafkaConfig(bootstrap_servers=bootstrap))
    desk = AdminDesk(lambda: pipeline.graph, pipeline.kafka, engine=pipeline)
    server = AdminServer(desk, address, engine=pipeline)  # it serves as long as it is held
    await server.start()
    await pipeline.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
