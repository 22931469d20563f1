"""
The sender of letters to nodes.

Owns where a letter of a node goes: its node's input topic, confirmed by the broker; then the lane that it came from
notes that it was sent, so that `redrive pipeline replay` does not send it again, as this does not send what that
command has sent. Knows no store.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import msgspec

from redrive.core.letter import Letter  # noqa: TC001 - handlers' annotations are read at run time
from redrive.core.trace_context import carrier_of
from redrive.errors import Reject
from redrive.sources.kafka.collect.sender import KafkaSender
from redrive.sources.pipeline.admin.lanes.lane_letter import LaneLetter
from redrive.sources.pipeline.admin.lanes.ledger import LaneLedger
from redrive.sources.pipeline.collect.convert import node_of_origin, place_of, stream_of
from redrive.sources.pipeline.graph import names
from redrive.sources.pipeline.protos.document_pb2 import DlqMessage

if TYPE_CHECKING:
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.pipeline.graph.model import Graph


class PipelineSender:
    """Publishes collected letters to the input topics of *graph*; the port of `redrive.core.sending`."""

    def __init__(self, config: KafkaConfig, graph: Graph) -> None:
        self._config, self._graph = config, graph
        self._sender = KafkaSender(config, topic=self._topic)
        self._ledgers: dict[str, LaneLedger] = {}
        self._noting = threading.Lock()

    async def publish(self, letter: Letter) -> None:
        """Send *letter* to its node and wait for the broker; raise Reject if that can never be."""
        node = self._node(letter)
        if letter.payload_version == 1 and await asyncio.to_thread(self._is_gone, letter):
            raise _gone(letter)
        stream = stream_of(letter)
        stream.current_node_id = node
        going = msgspec.structs.replace(
            letter, payload=stream.SerializeToString(), key=stream.stream_id, headers=(),
            metadata=carrier_of(letter.metadata),
        )  # fmt: skip
        await self._sender.publish(going)
        await asyncio.to_thread(self._note, letter)

    def close(self) -> None:
        """Close the clients."""
        self._sender.close()
        for ledger in self._ledgers.values():
            ledger.close()

    def _node(self, letter: Letter) -> str:
        node = node_of_origin(letter.origin)
        if node not in self._graph.by_id:
            raise Reject(
                f"cannot send letter {letter.id!r}: the graph {self._graph.id!r} has no node {node!r} any more; "
                "`redrive pipeline replay --to` sends its document to another node"
            )
        return node

    def _topic(self, letter: Letter) -> str:
        return names.input_topic(self._graph, self._graph.by_id[self._node(letter)])

    def _is_gone(self, letter: Letter) -> bool:
        """Whether an operator has sent the document away from its lane, where it stays until its retention ends."""
        place = place_of(letter)
        with self._noting:
            return place is not None and self._ledger(place[0]).has_now(LaneLetter(*place, DlqMessage()))

    def _note(self, letter: Letter) -> None:
        place = place_of(letter)
        with self._noting:
            if place is not None and self._ledger(place[0]).exists:
                self._ledger(place[0]).add([LaneLetter(*place, DlqMessage())])

    def _ledger(self, topic: str) -> LaneLedger:
        if topic not in self._ledgers:
            self._ledgers[topic] = LaneLedger(self._config, topic)
        return self._ledgers[topic]


def _gone(letter: Letter) -> Reject:
    return Reject(
        f"letter {letter.id!r} was not sent: the document that it was made of was sent to a node, or moved to "
        "quarantine, before; archive this letter, or edit it to send it once more"
    )
