"""
Where a document goes.

Owns the questions to a graph: whether a node takes a document, and which edges it leaves by, each with the name of its
branch. Without an edge the branch ends. The conditions themselves are the graph's; a node without any costs nothing.
Knows no transport.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.sources.pipeline.engine.journey.streams import branch_name
from redrive.sources.pipeline.graph.problems import Undecided
from redrive.sources.pipeline.modules.failures import StepFailed, Word, quarantined

if TYPE_CHECKING:
    from redrive.sources.pipeline.graph.model import Edge, Graph, Node
    from redrive.sources.pipeline.protos.document_pb2 import PipeStream


class BranchRoute(NamedTuple):
    """One way on: an edge, and the name of the branch that takes it."""

    edge: Edge
    branch: str


class Router:
    """Answers for *graph*; a condition that comes to no answer raises StepFailed."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._asking = {edge.source for edge in graph.edges if edge.when is not None}  # nodes with such edges
        self._conditions, self._view = _compiled(graph)

    def admits(self, node: Node, stream: PipeStream) -> bool:
        """Return whether *node* takes *stream*; one that it does not take skips the node."""
        return node.when is None or bool(_decided(self._conditions.admits(node.id, self._view(stream))))

    def routes(self, node: Node, stream: PipeStream) -> list[BranchRoute]:
        """Return where *stream* goes from *node*: of the edges that hold, those with the lowest priority."""
        limit = self._graph.hop_limit
        if limit is not None and stream.hop_count >= limit:
            return []
        if node.id in self._asking:
            edges: list[Edge] = _decided(self._conditions.edges(node.id, self._view(stream)))
        else:
            edges = self._unconditional(node, stream.hop_count)
        return [BranchRoute(edge, branch_name(stream.branch, n, len(edges))) for n, edge in enumerate(edges, 1)]

    def _unconditional(self, node: Node, hops: int) -> list[Edge]:
        found = [edge for edge in self._graph.outgoing[node.id] if edge.max_hops is None or hops <= edge.max_hops]
        return [edge for edge in found if edge.priority == found[0].priority]


def _decided(answer: Any) -> Any:
    """Return *answer*; raise StepFailed if it is that there is none."""
    if isinstance(answer, Undecided):
        said = f"{answer.where}: {answer.condition}: {answer.reason}"
        raise StepFailed(quarantined(Word.CEL_EVAL_ERROR, said))
    return answer


def _compiled(graph: Graph) -> tuple[Any, Any]:
    """Return the compiled conditions of *graph* and what makes a view of a document; nothing if there are none."""
    asked = [node.when for node in graph.nodes] + [edge.when for edge in graph.edges]
    if not any(asked):
        return None, None
    from redrive.sources.pipeline.graph.conditions import Conditions, View  # noqa: PLC0415 - loads CEL, 50 MB

    return Conditions(graph), View
