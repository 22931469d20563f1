"""
The conditions of a graph: CEL on nodes and edges.

Owns everything that knows CEL (cel-expr-python): what a condition may ask about, how it is compiled when the graph is
loaded, and what it says about a document. Conditions see the document without its body, so that a document whose body
is kept elsewhere is decided upon without it. An error of CEL is a value here too: `Undecided`. Knows no Kafka.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import re2
from cel_expr_python import cel
from google.protobuf import descriptor_pool

from redrive.sources.pipeline.graph.problems import GraphProblem, Undecided
from redrive.sources.pipeline.protos import document_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.sources.pipeline.graph.model import Edge, Graph, Node

_PACKAGE = "redrive.pipeline.v1"
_SLIM = ("doc_id", "type", "media_type", "filename", "body_size")
_STREAM = ("stream_id", "cluster_id", "current_node_id", "hop_count", "branch", "reprocess_count")
_NOT_SEEN = {
    r"\bdocument\s*\.\s*body\b": "conditions do not see the body; ask for document.body_size, type or attributes",
    r"\bstream\s*\.\s*document(_ref)?\b": "ask for `document` instead of a field of `stream`",
}
_LONGEST = 300  # characters of what CEL says


class View:
    """What conditions see of one document: read once for the node and all its edges."""

    __slots__ = ("activation", "hop_count")

    def __init__(self, stream: document_pb2.PipeStream) -> None:
        self.hop_count = stream.hop_count
        self.activation = _environment().Activation({"document": slim_document(stream), "stream": _slim_stream(stream)})


class Conditions:
    """The compiled conditions of one graph, which must have no problem."""

    def __init__(self, graph: Graph) -> None:
        self._edges = {
            node_id: [(edge, _compiled(edge.when)) for edge in edges] for node_id, edges in graph.outgoing.items()
        }
        self._nodes = {node.id: (node, _compiled(node.when)) for node in graph.nodes}

    def admits(self, node_id: str, view: View) -> bool | Undecided:
        """Return whether the node's `when` holds for the document; a node without one takes every document."""
        node, program = self._nodes[node_id]
        return _answer(program, node.when or "", f"node {node_id}", view)

    def edges(self, node_id: str, view: View) -> list[Edge] | Undecided:
        """Return the edges that the document takes: of those that hold, the ones with the lowest priority."""
        taken: list[Edge] = []
        for edge, program in self._edges[node_id]:  # the lowest priority first
            if taken and edge.priority != taken[0].priority:
                break
            if edge.max_hops is not None and view.hop_count > edge.max_hops:
                continue
            holds = _answer(program, edge.when or "", f"edge {edge.id}", view)
            if isinstance(holds, Undecided):
                return holds
            taken += [edge] if holds else []
        return taken


def slim_document(stream: document_pb2.PipeStream) -> document_pb2.PipeDoc:
    """Return the stream's document without its body; the body is not copied on the way."""
    if stream.WhichOneof("payload") == "document_ref":
        return stream.document_ref.document
    document = stream.document
    slim = document_pb2.PipeDoc(**{name: getattr(document, name) for name in _SLIM})
    slim.body_size = slim.body_size or len(document.body)
    slim.attributes.update(document.attributes)
    if document.HasField("data"):
        slim.data.CopyFrom(document.data)
    return slim


def condition_problems(graph: Graph) -> list[GraphProblem]:
    """Return a problem for every condition that does not compile, or asks for a field that there is not."""
    placed: Iterable[tuple[str, Node | Edge]] = [
        *((f"node {node.id}", node) for node in graph.nodes),
        *((f"edge {edge.id}", edge) for edge in graph.edges),
    ]
    checked = [(where, each.when) for where, each in placed if each.when is not None]
    return [GraphProblem(where, "when", problem) for where, text in checked if (problem := _problem(text))]


def _answer(program: Any, condition: str, where: str, view: View) -> bool | Undecided:
    if program is None:
        return True
    answer = program.eval(view.activation)
    value = answer.value()
    if isinstance(value, bool):
        return value
    is_error = answer.type() == cel.Type.ERROR
    reason = str(value)[:_LONGEST] if is_error else f"it is {answer.type()} and must be true or false"
    return Undecided(where, condition, reason)


def _compiled(condition: str | None) -> Any:
    return None if condition is None else _environment().compile(condition)


def _problem(condition: str) -> str:
    for pattern, way_out in _NOT_SEEN.items():
        if re2.search(pattern, condition):
            return way_out
    try:
        kind = _environment().compile(condition).return_type()
    except (RuntimeError, TypeError, UnicodeError, ValueError) as error:
        return f"it does not compile: {_said(error)}"
    allowed = kind == cel.Type.BOOL or kind == cel.Type.DYN  # noqa: PLR1714 - CEL's types have no hash
    return "" if allowed else f"it is {kind} and must be true or false; compare it with something"


def _said(error: Exception) -> str:
    """Return CEL's sentence without its drawing."""
    first = str(error).split("\n", 1)[0].removeprefix("INVALID_ARGUMENT: ").removeprefix("ERROR: <input>:")
    return first.replace(f"{_PACKAGE}.", "").replace(f" (in container '{_PACKAGE}')", "")[:_LONGEST]


def _slim_stream(stream: document_pb2.PipeStream) -> document_pb2.PipeStream:
    slim = document_pb2.PipeStream(**{name: getattr(stream, name) for name in _STREAM})
    slim.processing_path.extend(stream.processing_path)
    slim.metadata.CopyFrom(stream.metadata)
    return slim


@cache
def _environment() -> Any:
    variables = {"document": cel.Type(f"{_PACKAGE}.PipeDoc"), "stream": cel.Type(f"{_PACKAGE}.PipeStream")}
    return cel.NewEnv(descriptor_pool.Default(), variables=variables, container=_PACKAGE)
