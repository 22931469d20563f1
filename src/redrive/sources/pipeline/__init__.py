"""
The pipeline: a graph of gRPC modules with a dead-letter topic per node.

Owns the way of a document: `graph` says where it goes, `modules` calls and serves modules, `documents` keeps large
bodies, `engine` moves it along. It stands on the parts of `sources/kafka`. Knows no other source; `settings` alone
reads the environment.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redrive.sources.pipeline.engine.pipeline import Pipeline
    from redrive.sources.pipeline.graph.model import Edge, Graph, Node
    from redrive.sources.pipeline.graph.reading import load_graph
    from redrive.sources.pipeline.modules.serving import Module, module

__all__ = ["Edge", "Graph", "Module", "Node", "Pipeline", "load_graph", "module"]
_PLACES = {  # a command imports what it needs
    "Edge": "graph.model",
    "Graph": "graph.model",
    "Module": "modules.serving",
    "Node": "graph.model",
    "Pipeline": "engine.pipeline",
    "load_graph": "graph.reading",
    "module": "modules.serving",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    return found
