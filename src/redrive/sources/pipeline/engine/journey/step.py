"""
A document's step at one node.

Owns the order of a step: filter, hydrate, call the module, note it in the history. A step either adds its record to
the stream, or raises StepFailed and has changed nothing. Knows no Kafka, no retry and no other node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError

from redrive.engine.clock import unix_ms
from redrive.failpoints import hit
from redrive.sources.pipeline.engine.journey.streams import answered, stepped
from redrive.sources.pipeline.modules.failures import StepFailed, Word, quarantined
from redrive.sources.pipeline.protos.document_pb2 import STEP_STATUS_SKIPPED
from redrive.sources.pipeline.protos.module_pb2 import ProcessConfiguration, ProcessDataRequest, ProcessDataResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.trace_context import Carrier
    from redrive.sources.pipeline.engine.journey.bodies import DocumentBodies
    from redrive.sources.pipeline.graph.model import Graph, Node
    from redrive.sources.pipeline.modules.client import ModuleClient
    from redrive.sources.pipeline.protos.document_pb2 import PipeDoc, PipeStream

    Admits = Callable[[Node, PipeStream], bool]


class NodeStep:
    """The step at *node*; *admits* is its condition."""

    def __init__(self, graph: Graph, node: Node, client: ModuleClient, bodies: DocumentBodies, admits: Admits) -> None:
        self.graph, self.node, self.client = graph, node, client
        self._bodies, self._admits = bodies, admits
        self._config = ProcessConfiguration()
        if node.config:
            ParseDict(node.config, self._config.json_config)

    async def run(self, stream: PipeStream, calls: int, trace: Carrier | None = None) -> bool:
        """
        Take *stream* through the node and add that to it; return whether the module was called.

        *calls* is the number of this call, from 1; the module gets *trace*. Raise StepFailed if the step could not be
        carried out.
        """
        if self.node.when is not None and not self._admits(self.node, stream):
            now = unix_ms()
            stepped(self.graph, self.node, stream, status=STEP_STATUS_SKIPPED, calls=0, began_ms=now, ended_ms=now)
            return False
        began, document = unix_ms(), await self._bodies.load(stream)
        hit("pipeline.before_call")
        raw = await self.client.process(
            self._request(stream, document, calls), timeout=self.node.timeout, retry_codes=self.node.retry_codes,
            trace=trace,
        )  # fmt: skip
        hit("pipeline.after_call")
        answer = _decoded(raw)
        if answered(self.graph, self.node, stream, answer, calls=calls, began_ms=began, ended_ms=unix_ms()):
            output = answer.output_doc
            output.doc_id = output.doc_id or document.doc_id
            await self._bodies.keep(stream, output)
        return True

    def _request(self, stream: PipeStream, document: PipeDoc, calls: int) -> bytes:
        metadata, own = stream.metadata, self.node
        request = ProcessDataRequest(
            document=document, config=self._config, is_test=metadata.is_test, dry_run=metadata.dry_run
        )
        said = request.metadata
        said.pipeline_name, said.pipe_step_name, said.stream_id = self.graph.id, own.id, stream.stream_id
        said.current_hop_number, said.call = stream.hop_count + 1, calls
        said.history.extend(metadata.history)
        said.context_params.update(metadata.context_params)
        said.idempotency_key = f"{stream.stream_id}/{stream.branch}/{own.id}/{stream.hop_count}"
        return request.SerializeToString()


def _decoded(raw: bytes) -> ProcessDataResponse:
    try:
        return ProcessDataResponse.FromString(raw)
    except DecodeError as error:
        raise StepFailed(quarantined(Word.UNDECODABLE_ANSWER, f"the module's answer is no answer: {error}")) from None
