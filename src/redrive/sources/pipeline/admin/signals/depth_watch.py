"""
What waits at the nodes, kept fresh for metrics.

Owns the look at the broker every now and then, so that a scrape asks no broker. A broker that does not answer leaves
the depths unknown, not zero. Knows no exporter.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from redrive.errors import RedriveError
from redrive.sources.pipeline.admin.depths import depths_of

if TYPE_CHECKING:
    from redrive.engine.clock import Clock
    from redrive.sources.pipeline.admin.depths import NodeDepths
    from redrive.sources.pipeline.engine.pipeline import Pipeline

_log = logging.getLogger("redrive.pipeline")
EVERY = 15.0  # seconds between two looks


class DepthWatch:
    """Looks at the topics of *pipeline*; `seen` has what it saw last, by node."""

    def __init__(self, pipeline: Pipeline, clock: Clock, every: float = EVERY) -> None:
        self._pipeline, self._clock, self._every = pipeline, clock, every
        self.seen: dict[str, NodeDepths] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(self._every)

    async def look(self) -> None:
        """Look at every node once, one after the other."""
        graph, seen = self._pipeline.graph, {}
        try:
            for node in graph.nodes:
                seen[node.id] = await asyncio.to_thread(depths_of, self._pipeline.kafka, graph, node)
        except RedriveError as error:
            _log.warning("how much waits at the nodes is unknown: %s", type(error).__name__)
        self.seen = seen
