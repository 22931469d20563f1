"""
`redrive kafka collect`: dead-letter topics into the store, and replayed letters back to their topics.

Owns the command, which runs a collector and a worker that sends letters back. Knows no record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.kafka.options import Servers
from redrive.cli.options import AsJson
from redrive.cli.output import emit, say
from redrive.cli.session import settings_of

if TYPE_CHECKING:
    from redrive.app import Redrive
    from redrive.sources.kafka import Collector, KafkaConfig


def collect(
    ctx: typer.Context,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Dead-letter topics, or globs such as '*.dlq'.")],
    *,
    servers: Servers = None,
    group: Annotated[str, typer.Option(help="The consumer group that commits the progress.")] = "redrive-collect",
    queue: Annotated[str, typer.Option(help="The queue to keep the letters in.")] = "kafka",
    once: Annotated[bool, typer.Option("--once", help="Collect what is there now, then end.")] = False,
    send: Annotated[bool, typer.Option("--send/--no-send", help="Send replayed letters back to their topics.")] = True,
    allow: Annotated[list[str] | None, typer.Option(help="Send only to this topic; may be repeated.")] = None,
    as_json: AsJson = False,
) -> None:
    """Keep dead letters of Kafka topics as failed letters. Sends replayed ones back to their topics."""
    import asyncio

    from redrive.app import Redrive
    from redrive.cli.run.worker import set_up_log
    from redrive.settings import load_kafka

    config, settings = load_kafka(bootstrap_servers=servers)[1], settings_of(ctx)
    set_up_log(settings)
    app = Redrive(settings.url)
    done = asyncio.run(_run(app, config, topics, group, queue, once=once, send=send, allow=allow))
    if as_json:
        return emit(done)
    return say(f"{done['collected']} collected, {done['known']} known already, {done['sent_home']} sent home")


async def _run(
    app: Redrive, config: KafkaConfig, topics: list[str], group: str, queue: str,
    *, once: bool, send: bool, allow: list[str] | None,
) -> dict[str, int]:  # fmt: skip
    from redrive.core.facts import Delivered
    from redrive.sources.kafka import Collector, KafkaSender

    sent: list[int] = []
    sender = KafkaSender(config, allowed=tuple(allow) if allow else None)
    app.send_home("kafka", sender, queue=queue)
    app.listen(lambda fact: sent.append(fact.count) if isinstance(fact, Delivered) else None)
    async with app:
        collector = Collector(config, topics, app.store, group=group, queue=queue)
        try:
            await collect_and_send(app, collector, once=once, send=send)
        finally:
            sender.close()
    return {"collected": collector.collected, "known": collector.known, "sent_home": sum(sent)}


async def collect_and_send(app: Redrive, collector: Collector, *, once: bool, send: bool) -> None:
    """Run *collector* and, with *send*, the worker of *app* until stopped or, with *once*, until both are done."""
    import asyncio
    import signal

    def stop() -> None:
        collector.stop()
        app.stop()

    if once:
        await collector.run(until_end=True)
        if send:
            await app.run(until_idle=True, signals=False)
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    async with asyncio.TaskGroup() as both:
        both.create_task(collector.run())
        if send:
            both.create_task(app.run(signals=False))
