"""`redrive kafka`: run a consumer; look at dead-letter topics and send dead letters home."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.collect import collect
from redrive.cli.options import AsJson
from redrive.cli.output import emit, note, say
from redrive.errors import HandlerError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redrive.sources.kafka import KafkaConfig, ParallelConsumer
    from redrive.sources.kafka.choice import Choice, DeadLetter
    from redrive.sources.kafka.replay import Receipt

app = typer.Typer(no_args_is_help=True, help="Consume topics; look at and replay dead letters in Kafka.")
dlq = typer.Typer(no_args_is_help=True, help="Look at a dead-letter topic.")
app.add_typer(dlq, name="dlq")
app.command()(collect)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The dead-letter topic, such as orders.dlq.")]
Servers = Annotated[str | None, typer.Option("--servers", help="The brokers; KAFKA_BOOTSTRAP_SERVERS if absent.")]
Disposition = Annotated[str | None, typer.Option(help="Only those that died of this, such as timeout.")]
Exception_ = Annotated[str | None, typer.Option("--exception", help="Only those that died of this exception.")]
Key = Annotated[str | None, typer.Option(help="Only those of this key.")]
Partition = Annotated[int | None, typer.Option(min=0, help="Only those of this partition.")]
First = Annotated[int | None, typer.Option("--from-offset", min=0, help="Only those from this offset on.")]
Last = Annotated[int | None, typer.Option("--to-offset", min=0, help="Only those up to this offset.")]
Header = Annotated[str | None, typer.Option(metavar="NAME=VALUE", help="Only those with this header.")]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only those from this time on: ISO 8601, or 2h, 3d ago.")
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only those up to this time: ISO 8601, or 2h, 3d ago.")]
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]


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
) -> None:
    """Consume until told to stop: SIGTERM or SIGINT drains, commits and leaves the group."""
    import asyncio

    from redrive.cli.session import settings_of
    from redrive.cli.supervisor import hold_lifeline, slot
    from redrive.cli.worker import find, set_up_log

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
    say("stopped")


@dlq.command()
def ls(
    topic: Topic, *, servers: Servers = None, disposition: Disposition = None, exception: Exception_ = None,
    key: Key = None, header: Header = None, since: Since = None, until: Until = None,
    partition: Partition = None, first: First = None, last: Last = None, limit: Limit = 50, as_json: AsJson = False,
) -> None:  # fmt: skip
    """List dead letters: where they stand, where they come from, and why they died."""
    from itertools import islice

    from redrive.sources.kafka.replay import browse

    choice = _choice(
        disposition=disposition, exception=exception, key=_key(key), header=_pair(header), since=_moment(since),
        until=_moment(until), partition=partition, first=first, last=last,
    )  # fmt: skip
    found = [_line(letter) for letter in islice(browse(_config(servers), topic, choice), limit)]
    if as_json:
        return emit(found)
    for line in found:
        say(f"{line['place']}  {line['origin']}  {line['disposition']}  attempt {line['attempt']}  {line['reason']}")
    return say(f"{len(found)} shown")


@dlq.command()
def peek(
    topic: Topic,
    offset: Annotated[int | None, typer.Argument(min=0, help="Which one; the newest if absent.")] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="In which partition; with an offset 0, if absent, else any.")
    ] = None,
    servers: Servers = None,
) -> None:
    """Show one dead letter whole, headers and payload, as JSON: that at an offset, or the newest."""
    from redrive.sources.kafka.replay import browse, newest

    if offset is None:
        letter = newest(_config(servers), topic, partition)
        missing = f"{topic if partition is None else f'{topic}[{partition}]'} has no dead letters"
    else:
        choice = _choice(partition=partition or 0, first=offset, last=offset)
        letter = next(iter(browse(_config(servers), topic, choice)), None)
        missing = f"{topic}[{partition or 0}] has no record at offset {offset}"
    if letter is None:
        raise SourceError(f"{missing}; `redrive kafka dlq ls` shows which there are")
    headers = [[name, _text(value)] for name, value in letter.headers]
    emit({**_line(letter), "value": _text(letter.value), "headers": headers})


@dlq.command()
def stats(topic: Topic, servers: Servers = None, as_json: AsJson = False) -> None:
    """Count dead letters by why they died."""
    from collections import Counter

    from redrive.sources.kafka.replay import browse

    counts = Counter((each.disposition, each.exception) for each in browse(_config(servers), topic, _choice()))
    if as_json:
        return emit([{"disposition": d, "exception": e, "count": n} for (d, e), n in counts.most_common()])
    for (disposition, exception), count in counts.most_common():
        say(f"{count:>8}  {disposition or '-'}  {exception or '-'}")
    return say(f"{counts.total():>8}  in all")


@app.command()
def replay(
    topic: Topic, *, servers: Servers = None, disposition: Disposition = None, exception: Exception_ = None,
    key: Key = None, header: Header = None, since: Since = None, until: Until = None,
    partition: Partition = None, first: First = None, last: Last = None,
    allow: Annotated[list[str] | None, typer.Option(help="Another topic that may be written to.")] = None,
    max_replays: Annotated[int, typer.Option(min=1, help="Leave those that were replayed so often.")] = 3,
    rate: Annotated[float | None, typer.Option(min=0.1, help="So many a second.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    transactional: Annotated[bool, typer.Option("--transactional", help="Send each once, whatever happens.")] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Send dead letters back to the topic they came from; the same command goes on where it stood."""
    from redrive.sources.kafka import replay as replays

    choice = _choice(
        disposition=disposition, exception=exception, key=_key(key), header=_pair(header), since=_moment(since),
        until=_moment(until), partition=partition, first=first, last=last,
    )  # fmt: skip
    with _stopped_gently() as is_stopping:
        receipt = replays.replay(
            _config(servers), topic, choice, allowed=tuple(allow or ()), max_replays=max_replays, rate=rate,
            dry_run=dry_run, transactional=transactional, is_stopping=is_stopping,
        )  # fmt: skip
    if as_json:
        emit(_numbers(receipt, dry_run=dry_run))
    else:
        _say_numbers(receipt, dry_run=dry_run)
    if receipt.stopped:
        note("redrive: stopped before the end; the same command goes on from here")
        raise typer.Exit(1)


@app.command()
def release(
    topic: Topic,
    key: Annotated[str, typer.Argument(help="The key that is parked.")],
    servers: Servers = None,
    max_replays: Annotated[int, typer.Option(min=1, help="Leave those that were replayed so often.")] = 3,
) -> None:
    """Send the dead letters of a parked key home, in their order, and let its records run again."""
    from redrive.sources.kafka import replay as replays

    receipt = replays.release(_config(servers), topic, _key(key) or "", max_replays=max_replays)
    say(f"released {key!r}, {receipt.replayed} sent home")


@dlq.command()
def parked(topic: Topic, servers: Servers = None, as_json: AsJson = False) -> None:
    """List the keys whose records wait behind a dead letter."""
    from redrive.sources.kafka.parking import parked_keys

    found = [{"key": _key_text(key), "offset": at} for key, at in sorted(parked_keys(_config(servers), topic).items())]
    if as_json:
        return emit(found)
    for line in found:
        say(f"{line['key']}  since offset {line['offset']}")
    return say(f"{len(found)} keys are parked")


# ---------------------------------------------------------------------- behind them


@contextmanager
def _stopped_gently() -> Iterator[Callable[[], bool]]:
    """Note the first SIGINT or SIGTERM instead of breaking off: what was sent is still to be remembered."""
    import signal
    import threading

    asked = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}

    def ask(number: int, _frame: object) -> None:
        asked.set()
        signal.signal(number, before[number])  # the second one breaks off

    for number in numbers:
        signal.signal(number, ask)
    try:
        yield asked.is_set
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _numbers(receipt: Receipt, *, dry_run: bool) -> dict[str, Any]:
    return {
        "seen": receipt.seen, "replayed": receipt.replayed, "left": receipt.left, "parked": receipt.parked,
        "refused": receipt.refused, "by_disposition": dict(receipt.by_disposition),
        "by_exception": dict(receipt.by_exception), "dry_run": dry_run,
    }  # fmt: skip


def _say_numbers(receipt: Receipt, *, dry_run: bool) -> None:
    for name, count in [*receipt.by_disposition.most_common(), *receipt.by_exception.most_common()]:
        say(f"{count:>8}  {name or '-'}")
    verb = "would be replayed" if dry_run else "replayed"
    say(f"{receipt.replayed} {verb}, {receipt.left} not chosen, {receipt.parked} replayed too often, of {receipt.seen}")
    if receipt.refused:
        say(f"a replay stops at the first of {receipt.refused} that it may not send: {receipt.refusal}")


def _config(servers: str | None) -> KafkaConfig:
    from redrive.settings import load_kafka

    return load_kafka(bootstrap_servers=servers)[1]


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

    from redrive.cli.supervisor import supervise

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


def _choice(**wanted: Any) -> Choice:
    from redrive.sources.kafka.choice import Choice

    return Choice(**wanted)


def _pair(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is no header; write NAME=VALUE")
    return name, value


def _moment(text: str | None) -> int | None:
    """Return *text*, a moment or a span before now, in ms since the epoch."""
    from datetime import UTC, datetime

    from redrive.engine.clock import unix_ms

    if text is None:
        return None
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86_400}.get(text[-1:])
    if unit and text[:-1].isdigit():
        return unix_ms() - int(text[:-1]) * unit * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time; write 2026-01-31T12:00:00+00:00, or 2h for two hours ago"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _line(letter: DeadLetter) -> dict[str, Any]:
    return {
        "place": letter.place, "origin": letter.origin, "disposition": letter.disposition,
        "attempt": letter.attempt, "exception": letter.exception, "reason": letter.reason,
        "replays": letter.replays, "timestamp": letter.timestamp, "key": _key_text(letter.key),
    }  # fmt: skip


def _key(text: str | None) -> str | None:
    """Return *text*, which may be written in several ways, as `ls --json` writes the key that it means."""
    from redrive.sources.kafka.messages import key_of, key_text

    try:
        return None if text is None else key_text(key_of(text))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no key: {error}") from None


def _key_text(key: bytes | None) -> str | None:
    """Return *key* as `--key` and `release` take it."""
    from redrive.sources.kafka.messages import key_text

    return None if key is None else key_text(key)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")
