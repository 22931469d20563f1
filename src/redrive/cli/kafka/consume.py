"""
`redrive kafka consume`: run a consumer.

Owns finding the consumer or the worker, its processes and its metrics page. Knows no dead-letter topic.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.kafka.options import Servers
from redrive.cli.options import AsJson
from redrive.cli.output import emit, say
from redrive.errors import HandlerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.sources.kafka import ParallelConsumer


def consume(
    ctx: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="A ParallelConsumer or a worker function, as module:name, such as shop:consumer."
        ),
    ],
    *,
    topic: Annotated[
        list[str] | None, typer.Option(help="For a worker function: the topic to consume; may be repeated.")
    ] = None,
    group: Annotated[str, typer.Option(help="For a worker function: the consumer group.")] = "",
    ordering: Annotated[
        str | None, typer.Option(help="For a worker function: key_hash (the default), partition or unordered.")
    ] = None,
    servers: Servers = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Number of processes, each a member of the group; one that dies is restarted.")
    ] = 1,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65_535,
            envvar="REDRIVE_METRICS_PORT",
            help="Serve Prometheus metrics on this port; with --processes, each further process uses the next port.",
        ),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(envvar="REDRIVE_METRICS_HOST", help="The address to serve metrics on.")
    ] = "127.0.0.1",
    as_json: AsJson = False,
) -> None:
    """Consume topics until stopped. SIGTERM or SIGINT finishes running records, commits and leaves the group."""
    import asyncio

    from redrive.cli.run.supervisor import hold_lifeline, slot
    from redrive.cli.run.worker import find, set_up_log
    from redrive.cli.session import settings_of

    set_up_log(settings_of(ctx))
    consumer = _consumer(target, find(target), topic or [], group, ordering, servers)
    if processes > 1:
        given = {"--group": group, "--ordering": ordering, "--servers": servers, "--metrics-port": metrics_port}
        words = [f"{word}={value}" for word, value in given.items() if value]
        words += [f"--metrics-host={metrics_host}", *(f"--topic={each}" for each in topic or [])]
        raise typer.Exit(_members(consumer, target, words, processes))
    hold_lifeline()
    with _metrics(consumer, metrics_host, metrics_port and metrics_port + slot()):
        asyncio.run(_run(consumer))
    if as_json:
        return emit({"group": consumer.group, "topics": consumer.topics, "ended": "stopped",
                     "processed": consumer.counts.processed, "failed": consumer.counts.failed})  # fmt: skip
    return say("stopped")


# ---------------------------------------------------------------------- behind it


@contextmanager
def _metrics(consumer: ParallelConsumer, host: str, port: int | None) -> Iterator[None]:
    """Serve metrics while the consumer runs, if a port is given."""
    if port is None:
        yield
        return
    from redrive.sources.kafka.prometheus import serve

    page = serve(consumer, host=host, port=port)
    try:
        yield
    finally:
        page.close()


def _consumer(
    name: str, found: object, topics: list[str], group: str, ordering: Any, servers: str | None
) -> ParallelConsumer:
    from redrive.settings import load_kafka
    from redrive.sources.kafka import ParallelConsumer, WorkerFactory

    if isinstance(found, ParallelConsumer):
        given = {"--topic": topics, "--group": group, "--servers": servers, "--ordering": ordering}
        if idle := [word for word, value in given.items() if value]:
            raise typer.BadParameter(f"{name} is a consumer and has its own {', '.join(idle)}; leave it out")
        return found
    if not callable(found) and not isinstance(found, WorkerFactory):
        raise HandlerError(f"cannot run {name!r}: it is a {type(found).__name__}, not a ParallelConsumer or a worker")
    execution, kafka = load_kafka(bootstrap_servers=servers)
    if not topics or not (group or kafka.consumer_group):
        raise typer.BadParameter(f"{name} is a worker and needs --topic and --group")
    order: Any = ordering or "key_hash"
    return ParallelConsumer(topics, found, group=group, ordering=order, execution=execution, kafka=kafka)


def _members(consumer: ParallelConsumer, target: str, words: list[str], count: int) -> int:
    """Keep *count* processes that consume what *consumer* would; return the exit code."""
    import sys

    from redrive.cli.run.supervisor import supervise

    own = {"group_instance_id": consumer.kafka.group_instance_id, "transactional_id": consumer.kafka.transactional_id}
    if named := [name for name, value in own.items() if value]:
        raise typer.BadParameter(f"--processes: kafka.{named[0]} names one member of the group; leave one of them out")
    return supervise([sys.executable, "-m", "redrive.cli", "kafka", "consume", target, *words], count, until_idle=False)


async def _run(consumer: ParallelConsumer) -> None:
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, consumer.stop)
    await consumer.run()
