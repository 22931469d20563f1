"""
`redrive pipeline collect`: dead documents into the store, and replayed letters back to their nodes.

Owns the command, which runs a collector and a worker that sends letters back. Knows no document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.kafka.options import Servers, config_of
from redrive.cli.options import AsJson
from redrive.cli.output import emit, say
from redrive.cli.pipeline.check import GraphFile
from redrive.cli.pipeline.extra import needs_pipeline
from redrive.cli.session import settings_of

if TYPE_CHECKING:
    from redrive.app import Redrive
    from redrive.sources.kafka import KafkaConfig
    from redrive.sources.pipeline.graph.model import Graph


@needs_pipeline
def collect(
    ctx: typer.Context,
    graph: GraphFile,
    *,
    servers: Servers = None,
    group: Annotated[
        str, typer.Option(help="The consumer group that keeps its progress.")
    ] = "redrive-pipeline-collect",
    queue: Annotated[str, typer.Option(help="The queue that keeps the letters.")] = "pipeline",
    once: Annotated[bool, typer.Option("--once", help="End once everything there is now is done.")] = False,
    send: Annotated[bool, typer.Option("--send/--no-send", help="Send replayed letters back to their nodes.")] = True,
    as_json: AsJson = False,
) -> None:
    """Keep dead and quarantined documents as failed letters. Replayed letters go back to their nodes."""
    import asyncio

    from redrive.app import Redrive
    from redrive.cli.run.worker import set_up_log
    from redrive.sources.pipeline.graph.reading import load_graph

    settings, loaded = settings_of(ctx), load_graph(graph)
    set_up_log(settings)
    done = asyncio.run(_run(Redrive(settings.url), config_of(servers), loaded, group, queue, once=once, send=send))
    if as_json:
        return emit(done)
    return say(f"{done['collected']} collected, {done['known']} known already, {done['sent_home']} sent to their nodes")


async def _run(
    app: Redrive, config: KafkaConfig, graph: Graph, group: str, queue: str, *, once: bool, send: bool
) -> dict[str, int]:
    from functools import partial

    from redrive.cli.kafka.collect import collect_and_send
    from redrive.core.facts import Delivered
    from redrive.sources.kafka import Collector
    from redrive.sources.pipeline.admin.lanes.jobs import lane_of
    from redrive.sources.pipeline.collect.convert import SCHEME, draft_of
    from redrive.sources.pipeline.collect.sender import PipelineSender

    sent: list[int] = []
    sender = PipelineSender(config, graph)
    app.send_home(SCHEME, sender, queue=queue)
    app.listen(lambda fact: sent.append(fact.count) if isinstance(fact, Delivered) else None)
    lanes = [lane_of(graph, node, "dlq") for node in graph.nodes]
    lanes += [lane_of(graph, node, "quarantine") for node in graph.nodes]
    patterns = [f"^{_escaped(topic)}$" for topic in lanes]  # a lane that is not there yet is collected once it is
    async with app:
        collector = Collector(
            config, patterns, app.store, group=group, queue=queue, draft=partial(draft_of, queue=queue)
        )
        try:
            await collect_and_send(app, collector, once=once, send=send)
        finally:
            sender.close()
    return {"collected": collector.collected, "known": collector.known, "sent_home": sum(sent)}


def _escaped(topic: str) -> str:
    return topic.replace(".", "[.]")
