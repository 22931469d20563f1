"""
Pauses of nodes, kept in the store that all engines share.

Owns the name under which a node's pause is kept, and the watcher that carries pauses into the gates of one engine.
While the store is away, the gates stay as they are. Knows no Kafka.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec import Struct

from redrive.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.engine.clock import Clock
    from redrive.sources.pipeline.engine.pipeline import Pipeline
    from redrive.sources.pipeline.graph.model import Graph
    from redrive.stores.contract import Store

_log = logging.getLogger("redrive.pipeline")
_LOOK = 1.0  # seconds between two looks at the store


class NodePause(Struct, frozen=True, kw_only=True):
    """Who paused a node, and why."""

    by: str
    reason: str


def pause_name(graph: Graph, node_id: str) -> str:
    """Return the name of a node's pause in the store: that of a queue without letters."""
    return f"pipeline.{graph.env}.{node_id}"


async def pauses_of(store: Store, graph: Graph) -> dict[str, NodePause]:
    """Return the pauses of the nodes of *graph*, by node."""
    states = {state.spec.name: state for state in await store.queues() if state.paused}
    named = {node.id: states.get(pause_name(graph, node.id)) for node in graph.nodes}
    return {name: NodePause(by=state.paused_by, reason=state.reason) for name, state in named.items() if state}


class PauseWatcher:
    """Carries the pauses in *store* into the gates of *pipeline*."""

    def __init__(self, pipeline: Pipeline, store: Store, clock: Clock) -> None:
        self._pipeline, self._store, self._clock = pipeline, store, clock
        self._paused = set[str]()

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Look again and again until *is_over*."""
        while not is_over():
            await self.tick()
            await self._clock.sleep(_LOOK)

    async def tick(self) -> None:
        """Look once."""
        try:
            found = await pauses_of(self._store, self._pipeline.graph)
        except StoreError as error:
            _log.warning("cannot look for pauses of nodes, so they stay as they are: %s", error)
            return
        found = {name: pause for name, pause in found.items() if name in self._pipeline.counts}  # those that run by now
        for name, pause in found.items():
            self._pipeline.gate(name).pause(f"by {pause.by}: {pause.reason}" if pause.reason else f"by {pause.by}")
        for name in self._paused - found.keys():
            if name in self._pipeline.counts:
                self._pipeline.gate(name).resume()
        self._paused = set(found)
