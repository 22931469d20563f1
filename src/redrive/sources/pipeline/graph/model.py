"""
The graph of a pipeline as a value.

Owns nodes, edges and their defaults: a key that is absent has its default here, and zero is zero. `reading` makes a
graph of YAML or JSON, `checking` finds what is wrong with one, `names` has its topics. Knows no Kafka and no gRPC.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

from msgspec import Struct, field

from redrive.core.policy import RetryPolicy

MIB = 1024 * 1024
# gRPC codes of infrastructure failures: the module, or the way to it, may be well again soon.
RETRY_CODES = (
    "ABORTED",
    "DATA_LOSS",
    "DEADLINE_EXCEEDED",
    "INTERNAL",
    "RESOURCE_EXHAUSTED",
    "UNAVAILABLE",
    "UNKNOWN",
)


class DlqSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a node retries and where its dead letters go; *max_retries* is the number of calls, the first included."""

    enabled: bool = True  # no: a document that fails is logged, counted as dropped and gone
    topic_override: str | None = None
    max_retries: int = 3
    initial_backoff: float = 1.0  # seconds
    max_backoff: float = 30.0  # seconds
    backoff_multiplier: float = 2.0
    include_payload: bool = True  # no: the dead letter has only the reference to the document
    jitter: Literal["full", "none"] = "full"
    max_reprocess_count: int = 3  # replays; the next one goes to quarantine

    @property
    def policy(self) -> RetryPolicy:
        """The waits between calls."""
        return RetryPolicy.exponential(
            self.initial_backoff, self.max_backoff, self.backoff_multiplier, self.max_retries, self.jitter
        )


class NodeBreaker(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a node pauses because its module is down: its documents stay in its topic."""

    failures: int = 20  # in a row
    open_for: float = 30.0  # seconds until one document is tried


class Tls(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the engine and a module prove who they are; with *certificate* and *key* the engine does too (mTLS)."""

    ca: str | None = None  # path of a PEM file; None: the system's
    certificate: str | None = None  # path
    key: str | None = None  # path
    server_name: str | None = None  # expected in the module's certificate, if it is not the address


class Node(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step of the graph: a module, and how its documents are called, retried and kept."""

    id: str
    module: str  # an address that gRPC understands: "localhost:50051", "dns:///embedder:50051"
    name: str = ""
    when: str | None = None  # CEL; a document for which it is false skips the node
    input: str | None = None  # topic; None: in.{env}.{node}
    output: str | None = None  # topic for documents that end here
    dlq: DlqSettings = DlqSettings()
    timeout: float = 30.0  # seconds a call
    retry_codes: tuple[str, ...] = RETRY_CODES
    concurrency: int = 16  # calls at once, per engine
    keepalive: float = 300.0  # seconds between pings; servers refuse more frequent ones unless they are set up for it
    breaker: NodeBreaker | None = None
    tls: Tls | None = None
    partitions: int | None = None  # of topics that `run` creates; None: the graph's
    max_message_bytes: int = 64 * MIB  # that the engine sends to the module or takes from it
    config: dict[str, Any] = field(default_factory=dict)  # handed to the module with every document


class Edge(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    A way from one node to another.

    Of the edges whose condition holds, those with the lowest *priority* get the document, each its own branch.
    """

    source: str = field(name="from")
    target: str = field(name="to")
    when: str | None = None  # CEL
    transport: Literal["kafka", "grpc"] = "kafka"
    priority: int = 0
    max_hops: int | None = None  # a document that has more behind it does not take this edge

    @property
    def id(self) -> str:
        """Its name in messages, metrics and histories."""
        return f"{self.source}->{self.target}"


class DocumentStorage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where bodies that are too large for a topic are kept, and how long."""

    url: str  # "file:///var/lib/redrive/documents", "s3://bucket/prefix", …
    inline_limit: int = 512 * 1024  # bytes; a larger body travels by reference
    keep_days: float | None = None  # after the document's last branch reached the end; None: for ever
    options: dict[str, str] = field(default_factory=dict)  # of the object store, such as endpoint and region


class Graph(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Nodes and edges, and what holds for all of them."""

    env: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    id: str = "pipeline"
    version: int = 1  # in every document; `reading` makes one of the content if none is given
    entry: str | None = None  # the node that new documents go to; None: the only one without an edge to it
    hop_limit: int | None = None  # steps that a document may take; None: unlimited, which a cycle does not allow
    create_topics: bool = True
    partitions: int = 4  # of topics that `run` creates
    documents: DocumentStorage | None = None

    @cached_property
    def by_id(self) -> dict[str, Node]:
        """The nodes by their id."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def outgoing(self) -> dict[str, tuple[Edge, ...]]:
        """The edges of each node, those with the lowest priority first."""
        return {
            node.id: tuple(sorted((e for e in self.edges if e.source == node.id), key=lambda edge: edge.priority))
            for node in self.nodes
        }

    @cached_property
    def entries(self) -> tuple[Node, ...]:
        """The nodes that new documents may enter at, the one that `entry` names alone if it is given."""
        if self.entry is not None:
            return tuple(node for node in self.nodes if node.id == self.entry)
        targets = {edge.target for edge in self.edges if edge.target != edge.source}
        return tuple(node for node in self.nodes if node.id not in targets)
