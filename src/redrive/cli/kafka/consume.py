"""`redrive kafka`: run a consumer; look at dead-letter topics and send dead letters home."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.kafka.collect import collect
from redrive.cli.kafka.options import (
    Disposition,
    Exception_,
    First,
    Header,
    Key,
    Last,
    Partition,
    Servers,
    Since,
    Topic,
    Until,
    choice_of,
    config_of,
)
from redrive.cli.kafka.replay import release, replay
from redrive.cli.options import AsJson, Limit
from redrive.cli.output import emit, say
from redrive.cli.tables import show_table
from redrive.errors import HandlerError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from redrive.sources.kafka import ParallelConsumer
    from redrive.sources.kafka.replay.filter import DeadLetter

app = typer.Typer(no_args_is_help=True, help="Consume topics; look at and replay dead letters in Kafka.")
dlq = typer.Typer(no_args_is_help=True, help="Look at a dead-letter topic.")
app.add_typer(dlq, name="dlq")
app.command()(collect)
app.command()(replay)
app.command()(release)


@app.command()
def consume(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A ParallelConsumer or a worker: shop:consumer.")],
    *,
    topic: Annotated[list[str] | None, typer.Option(help="For a worker: what to consume.")] = None,
    group: Annotated[str, typer.Option(help="For a worker: the consumer group.")] = "",
    ordering: Annotated[
        str | None, typer.Option(help="For a worker: key_hash (if absent), partition or unordered.")
    ] = None,
    servers: Servers = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Run so many processes, each a member of the group; restart dead ones.")
    ] = 1,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65_535,
            envvar="REDRIVE_METRICS_PORT",
            help="Serve Prometheus metrics here; the second process on the next port, and so on.",
        ),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(envvar="REDRIVE_METRICS_HOST", help="The address that metrics are served on.")
    ] = "127.0.0.1",
    as_json: AsJson = False,
) -> None:
    """Consume until told to stop. SIGTERM or SIGINT drains, commits and leaves the group."""
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


@dlq.command()
def ls(
    topic: Topic, *, servers: Servers = None, disposition: Disposition = None, exception: Exception_ = None,
    key: Key = None, header: Header = None, since: Since = None, until: Until = None,
    partition: Partition = None, first: First = None, last: Last = None, limit: Limit = 50, as_json: AsJson = False,
) -> None:  # fmt: skip
    """List dead letters with their keys. Each says where it stands, and when and why it died."""
    from itertools import islice

    from redrive.sources.kafka.replay.replay import browse

    choice = choice_of(
        disposition=disposition, exception=exception, key=key, header=header, since=since, until=until,
        partition=partition, first=first, last=last,
    )  # fmt: skip
    found = list(islice(browse(config_of(servers), topic, choice), limit + 1))
    lines, is_more = [_line(letter) for letter in found[:limit]], len(found) > limit
    if as_json:
        return emit({"dead_letters": lines, "more": is_more})
    columns = ("place", "at", "key", "why", "tries", "error")
    show_table("", columns, ([_shown(line)[column] for column in columns] for line in lines))
    return say(f"{len(lines)} shown" + ("; there are more, see --limit and the filters" if is_more else ""))


@dlq.command()
def peek(
    topic: Topic,
    offset: Annotated[int | None, typer.Argument(min=0, help="Which one; the newest if absent.")] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="In which partition; with an offset 0, if absent, else any.")
    ] = None,
    servers: Servers = None,
    _as_json: Annotated[bool, typer.Option("--json", help="It is always printed as JSON.")] = True,
) -> None:
    """Show one dead letter as JSON, with headers and payload. Takes the newest, or that at an offset."""
    from redrive.sources.kafka.replay.replay import browse, newest

    if offset is None:
        letter = newest(config_of(servers), topic, partition)
        missing = f"{topic if partition is None else f'{topic}[{partition}]'} has no dead letters"
    else:
        choice = choice_of(partition=partition or 0, first=offset, last=offset)
        letter = next(iter(browse(config_of(servers), topic, choice)), None)
        missing = f"{topic}[{partition or 0}] has no record at offset {offset}"
    if letter is None:
        raise SourceError(f"{missing}; `redrive kafka dlq ls` shows which there are")
    headers = [[name, _text(value)] for name, value in letter.headers]
    emit({**_line(letter), "value": _text(letter.value), "headers": headers})


@dlq.command()
def stats(topic: Topic, servers: Servers = None, as_json: AsJson = False) -> None:
    """Count dead letters by why they died."""
    from collections import Counter

    from redrive.sources.kafka.replay.replay import browse

    counts = Counter((each.disposition, each.exception) for each in browse(config_of(servers), topic, choice_of()))
    total = counts.total()
    if as_json:
        lines = [{"disposition": d, "exception": e, "count": n} for (d, e), n in counts.most_common()]
        return emit({"counts": lines, "total": total})
    for (disposition, exception), count in counts.most_common():
        say(f"{count:>8}  {disposition or '-'}  {exception or '-'}")
    return say(f"{total:>8}  in all")


@dlq.command()
def parked(topic: Topic, servers: Servers = None, as_json: AsJson = False) -> None:
    """List the keys whose records wait behind a dead letter."""
    from redrive.sources.kafka.dead_letters.parked_keys import parked_keys

    keys = sorted(parked_keys(config_of(servers), topic).items())
    found = [{"key": _key_text(key), "offset": at} for key, at in keys]
    if as_json:
        return emit({"keys": found})
    for line in found:
        say(f"{line['key']}  since offset {line['offset']}")
    return say(f"{len(found)} keys are parked")


# ---------------------------------------------------------------------- behind them


@contextmanager
def _metrics(consumer: ParallelConsumer, host: str, port: int | None) -> Iterator[None]:
    """Serve metrics meanwhile, if a port is given."""
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
            raise typer.BadParameter(
                f"{name} is a consumer and says itself what {', '.join(idle)} would say; leave it out"
            )
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


def _line(letter: DeadLetter) -> dict[str, Any]:
    return {
        "place": letter.place, "origin": letter.origin, "disposition": letter.disposition,
        "attempt": letter.attempt, "exception": letter.exception, "reason": letter.reason,
        "replays": letter.replays, "timestamp": _instant(letter.timestamp), "key": _key_text(letter.key),
    }  # fmt: skip


def _shown(line: dict[str, Any]) -> dict[str, Any]:
    """Return *line* as people read it: one text says what it died of, and its type if that says more."""
    kind, reason = line["exception"].rpartition(".")[2], line["reason"]
    error = f"{kind}: {reason}" if kind and reason != line["exception"] else reason or kind
    return line | {"at": line["timestamp"], "why": line["disposition"], "tries": line["attempt"], "error": error}


def _instant(ms: int) -> datetime | None:
    """Return a time of a record; one that nobody can have meant is none."""
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(ms / 1000, UTC) if ms > 0 else None
    except (OverflowError, OSError, ValueError):
        return None


def _key_text(key: bytes | None) -> str | None:
    """Return *key* as `--key` and `release` take it."""
    from redrive.sources.kafka.records.messages import key_text

    return None if key is None else key_text(key)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")
