"""
`redrive kafka dlq`: look at a dead-letter topic.

Owns its commands, which change nothing, and how a dead letter is shown. Knows no store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    config_of,
    filter_of,
)
from redrive.cli.options import AsJson, Limit
from redrive.cli.output import emit, say
from redrive.cli.tables import show_table
from redrive.errors import SourceError

if TYPE_CHECKING:
    from datetime import datetime

    from redrive.sources.kafka.replay.filter import DeadLetter

dlq = typer.Typer(no_args_is_help=True, help="Look at a dead-letter topic.")


@dlq.command()
def ls(
    topic: Topic, *, servers: Servers = None, disposition: Disposition = None, exception: Exception_ = None,
    key: Key = None, header: Header = None, since: Since = None, until: Until = None,
    partition: Partition = None, first: First = None, last: Last = None, limit: Limit = 50, as_json: AsJson = False,
) -> None:  # fmt: skip
    """List dead letters: position, time, key, and why each died."""
    from itertools import islice

    from redrive.sources.kafka.replay.replay import browse

    wanted = filter_of(
        disposition=disposition, exception=exception, key=key, header=header, since=since, until=until,
        partition=partition, first=first, last=last,
    )  # fmt: skip
    found = list(islice(browse(config_of(servers), topic, wanted), limit + 1))
    lines, is_more = [_line(letter) for letter in found[:limit]], len(found) > limit
    if as_json:
        return emit({"dead_letters": lines, "more": is_more})
    columns = ("place", "at", "key", "why", "tries", "error")
    show_table("", columns, ([_shown(line)[column] for column in columns] for line in lines))
    return say(f"{len(lines)} shown" + ("; there are more, see --limit and the filters" if is_more else ""))


@dlq.command()
def peek(
    topic: Topic,
    offset: Annotated[
        int | None, typer.Argument(min=0, help="The offset of the letter; default: the newest letter.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="Its partition; default: 0 if an offset is given, otherwise any.")
    ] = None,
    servers: Servers = None,
    _as_json: Annotated[bool, typer.Option("--json", help="Accepted for symmetry: the output is always JSON.")] = True,
) -> None:
    """Show one dead letter as JSON, with headers and payload. Shows the newest, or the one at an offset."""
    from redrive.sources.kafka.replay.replay import browse, newest

    if offset is None:
        letter = newest(config_of(servers), topic, partition)
        missing = f"{topic if partition is None else f'{topic}[{partition}]'} has no dead letters"
    else:
        wanted = filter_of(partition=partition or 0, first=offset, last=offset)
        letter = next(iter(browse(config_of(servers), topic, wanted)), None)
        missing = f"{topic}[{partition or 0}] has no record at offset {offset}"
    if letter is None:
        raise SourceError(f"{missing}; `redrive kafka dlq ls` shows which there are")
    headers = [[name, _text(value)] for name, value in letter.headers]
    emit({**_line(letter), "value": _text(letter.value), "headers": headers})


@dlq.command()
def stats(topic: Topic, servers: Servers = None, as_json: AsJson = False) -> None:
    """Count dead letters by disposition and exception."""
    from collections import Counter

    from redrive.sources.kafka.replay.replay import browse

    counts = Counter((each.disposition, each.exception) for each in browse(config_of(servers), topic, filter_of()))
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
    from redrive.sources.kafka.replay.unpark import parked_keys

    keys = sorted(parked_keys(config_of(servers), topic).items())
    found = [{"key": _key_text(key), "offset": at} for key, at in keys]
    if as_json:
        return emit({"keys": found})
    for line in found:
        say(f"{line['key']}  since offset {line['offset']}")
    return say(f"{len(found)} keys are parked")


# ---------------------------------------------------------------------- how a dead letter is shown


def _line(letter: DeadLetter) -> dict[str, Any]:
    return {
        "place": letter.place, "origin": letter.origin, "disposition": letter.disposition,
        "attempt": letter.attempt, "exception": letter.exception, "reason": letter.reason,
        "replays": letter.replays, "timestamp": _instant(letter.timestamp), "key": _key_text(letter.key),
    }  # fmt: skip


def _shown(line: dict[str, Any]) -> dict[str, Any]:
    """Return *line* for the table: one text has the error and, if it adds something, its type."""
    kind, reason = line["exception"].rpartition(".")[2], line["reason"]
    error = f"{kind}: {reason}" if kind and reason != line["exception"] else reason or kind
    return line | {"at": line["timestamp"], "why": line["disposition"], "tries": line["attempt"], "error": error}


def _instant(ms: int) -> datetime | None:
    """Return the time of a record, None if it is out of range."""
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(ms / 1000, UTC) if ms > 0 else None
    except (OverflowError, OSError, ValueError):
        return None


def _key_text(key: bytes | None) -> str | None:
    """Return *key* as `--key` and `unpark` take it."""
    from redrive.sources.kafka.records.messages import key_text

    return None if key is None else key_text(key)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")
