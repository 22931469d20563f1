"""
The names of a pipeline's topics.

Owns one rule for each: `in.{env}.{node}`, `dlq.{env}.{node}`, `quarantine.{env}.{node}`, `done.{env}`, and what a node
may name instead. Knows no Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import re2

if TYPE_CHECKING:
    from redrive.sources.pipeline.graph.model import Graph, Node

LONGEST = 249  # characters of a topic's name that Kafka allows
_ALLOWED = re2.compile(r"^[a-zA-Z0-9._-]+$")


def input_topic(graph: Graph, node: Node) -> str:
    """Return the topic that holds the documents for *node*."""
    return node.input or f"in.{graph.env}.{node.id}"


def dlq_topic(graph: Graph, node: Node) -> str:
    """Return the topic for documents that *node* could not process after all its calls."""
    return node.dlq.topic_override or f"dlq.{graph.env}.{node.id}"


def quarantine_topic(graph: Graph, node: Node) -> str:
    """Return the topic for documents that *node* can never process as they are."""
    return f"quarantine.{graph.env}.{node.id}"


def done_topic(graph: Graph) -> str:
    """Return the topic with a small record of every branch that reached the end."""
    return f"done.{graph.env}"


def is_topic(name: str) -> bool:
    """Return whether Kafka allows *name*."""
    return len(name) <= LONGEST and name not in {".", ".."} and _ALLOWED.match(name) is not None


def all_topics(graph: Graph) -> list[tuple[str, str]]:
    """Return every topic of the graph with the key that names it, such as ("in.prod.embed", "embed.input")."""
    found = [(done_topic(graph), "env")]
    for node in graph.nodes:
        found += [(input_topic(graph, node), f"{node.id}.input"), (dlq_topic(graph, node), f"{node.id}.dlq")]
        found.append((quarantine_topic(graph, node), f"{node.id}.quarantine"))
        found += [(node.output, f"{node.id}.output")] if node.output else []
    return found
