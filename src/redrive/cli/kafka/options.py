"""
The options that `redrive kafka` commands share, and what they mean.

Owns their names and help texts, and how texts become a configuration and a filter of dead letters; an error names the
option that cannot be read. Knows no command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from redrive.sources.kafka import KafkaConfig
    from redrive.sources.kafka.replay.filter import Filter

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The dead-letter topic, such as orders.dlq.")]
Servers = Annotated[str | None, typer.Option("--servers", help="Bootstrap servers; default: KAFKA_BOOTSTRAP_SERVERS.")]
Disposition = Annotated[str | None, typer.Option(help="Only dead letters with this disposition, such as timeout.")]
Exception_ = Annotated[str | None, typer.Option("--exception", help="Only dead letters with this exception.")]
Key = Annotated[str | None, typer.Option(help="Only dead letters with this key, as `dlq ls --json` writes it.")]
Partition = Annotated[int | None, typer.Option(min=0, help="Only this partition of the dead-letter topic.")]
First = Annotated[int | None, typer.Option("--from-offset", min=0, help="Only offsets from this one on.")]
Last = Annotated[int | None, typer.Option("--to-offset", min=0, help="Only offsets up to and including this one.")]
Header = Annotated[str | None, typer.Option(metavar="NAME=VALUE", help="Only dead letters with this header.")]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Only since this time: ISO 8601, or a span before now such as 2h or 3d."),
]
Until = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Only until this time: ISO 8601, or a span before now such as 2h or 3d."),
]
MaxReplays = Annotated[int, typer.Option(min=1, help="Skip dead letters that were replayed this many times already.")]


def config_of(servers: str | None) -> KafkaConfig:
    """Return the configuration of the environment, with *servers* if given."""
    from redrive.settings import load_kafka

    return load_kafka(bootstrap_servers=servers)[1]


def filter_of(
    *, key: str | None = None, header: str | None = None, since: str | None = None, until: str | None = None,
    **plain: Any,
) -> Filter:  # fmt: skip
    """Return the filter that these options describe."""
    from redrive.sources.kafka.replay.filter import Filter

    return Filter(key=plain_key(key), header=_pair(header), since=moment_of(since), until=moment_of(until), **plain)


def plain_key(text: str | None) -> str | None:
    """Return the key that *text* means, written as `dlq ls --json` writes it."""
    from redrive.sources.kafka.records.messages import key_of, key_text

    try:
        return None if text is None else key_text(key_of(text))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no key: {error}") from None


def _pair(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is no header; write NAME=VALUE")
    return name, value


def moment_of(text: str | None) -> int | None:
    """Return *text*, an instant or a span before now, in ms since the epoch."""
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
