"""
Documents that a node begins again.

Owns the memory of what one node began lately in this engine: branches with their hop and their replay. A document that
a crash, a rebalance or a caller brings back is the same in all of them; a replay by an operator is not. The memory is
bounded and ends with the engine, so it finds fewer repeats than there are: a document that another engine began, or
this one long ago, counts as new. Knows no topic and no offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.sources.pipeline.protos.document_pb2 import PipeStream

REMEMBERED = 20_000  # documents of a node, at least; twice as many at most


class RecentSteps:
    """What a node began lately; *most* are remembered for sure."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._newer, self._older = set[int](), set[int]()

    def is_repeat(self, stream: PipeStream) -> bool:
        """Note that the node begins *stream*; return whether it began it before."""
        mark = hash((stream.stream_id, stream.branch, stream.hop_count, stream.replay_id))
        if mark in self._newer:
            return True
        is_known = mark in self._older
        if len(self._newer) >= self._most:
            self._newer, self._older = set(), self._newer
        self._newer.add(mark)
        return is_known
