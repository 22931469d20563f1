"""
How a running engine reads its graph again.

Owns what a reload answers and that each one is in the audit log, if there is a store, with who asked: an operator's
command, `SIGHUP`, or `--watch`. Knows no signal and no server.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from redrive.cli.output import note
from redrive.errors import RedriveError, StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from redrive.sources.pipeline import Pipeline
    from redrive.sources.pipeline.graph.model import Graph
    from redrive.sources.pipeline.protos.admin_pb2 import ReloadResponse
    from redrive.stores.contract import Store


class GraphReloads:
    """Reloads the graph of *pipeline* from the file *path*; *store*, once it is open, has the audit log."""

    def __init__(self, pipeline: Pipeline, path: Path) -> None:
        self._pipeline, self._path = pipeline, path
        self.store: Store | None = None
        self._asking, self._asked = dict[str, None](), asyncio.Event()

    def ask(self, by: str) -> None:
        """Let the next reload begin soon; several that ask meanwhile get one."""
        self._asking[by] = None
        self._asked.set()

    async def run(self) -> None:
        """Reload whenever a reload is asked for; a graph that cannot run is reported, and the old one goes on."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            by, self._asking = ", ".join(self._asking), {}
            await self._reported(by)

    async def _reported(self, by: str) -> None:
        try:
            answer = await self.reload(by)
        except StoreError as error:
            note(f"redrive: the graph is reloaded, and the audit log does not say so: {error}")
        except RedriveError as error:
            note(f"redrive: the graph goes on as it was: {error}")
        else:
            if answer.problems:
                note("redrive: the graph goes on as it was: " + "; ".join(answer.problems))

    async def reload(self, by: str, *, dry_run: bool = False) -> ReloadResponse:
        """Read the graph again and go on with it; one that cannot run is answered with its problems."""
        from redrive.sources.pipeline.graph.problems import errors
        from redrive.sources.pipeline.graph.reading import examine_file
        from redrive.sources.pipeline.protos.admin_pb2 import ReloadResponse

        before, examined = self._pipeline.graph, examine_file(self._path)
        if examined.graph is None:
            problems = [str(problem) for problem in errors(examined.problems)]
            return ReloadResponse(old_version=before.version, new_version=before.version, problems=problems)
        if not dry_run:
            await self._go_on_with(examined.graph, by)
        return changes(before, examined.graph)

    async def _go_on_with(self, graph: Graph, by: str) -> None:
        await self._pipeline.reload(graph)
        if self.store is not None:
            await self.store.record(by, "pipeline reload", f"{graph.id} version {graph.version}", 1, "")


def changes(before: Graph, after: Graph) -> ReloadResponse:
    """Return which nodes differ between two graphs."""
    from redrive.sources.pipeline.protos.admin_pb2 import ReloadResponse

    both = after.by_id.keys() & before.by_id.keys()
    return ReloadResponse(
        old_version=before.version, new_version=after.version,
        added_node_ids=sorted(after.by_id.keys() - before.by_id.keys()),
        removed_node_ids=sorted(before.by_id.keys() - after.by_id.keys()),
        changed_node_ids=sorted(name for name in both if after.by_id[name] != before.by_id[name]),
    )  # fmt: skip
