"""
Bodies that no document needs any more.

Owns when an engine deletes bodies by age: every hour, if the graph says for how many days to keep them. Several engines
do no harm. What may go is the repository's rule. Knows no Kafka and no module.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.engine.clock import Clock
    from redrive.sources.pipeline.graph.model import Graph

_log = logging.getLogger("redrive.pipeline")
EVERY = 3600.0  # seconds


async def delete_old_bodies(graph: Callable[[], Graph], clock: Clock) -> None:
    """Delete old bodies every hour, as the graph of that moment says, until cancelled."""
    while True:
        await clock.sleep(EVERY)
        await delete_once(graph())


async def delete_once(graph: Graph) -> int:
    """Delete the bodies that *graph* need not keep; return how many went. A repository that is away is asked later."""
    storage = graph.documents
    if storage is None or storage.keep_days is None:
        return 0
    from redrive.sources.pipeline.documents.repository import (  # noqa: PLC0415 - few graphs need it
        DocumentRepository,
        RepositoryAway,
    )

    try:
        gone = await DocumentRepository(storage).delete_ended(storage.keep_days)
    except RepositoryAway as error:
        _log.warning("old bodies are deleted later: %s", error)
        return 0
    if gone:
        _log.info("%d bodies deleted: their documents ended more than %g days ago", gone, storage.keep_days)
    return gone
