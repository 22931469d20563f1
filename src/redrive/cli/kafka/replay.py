"""
`redrive kafka replay`: send dead letters back to the topics they came from.

Owns the order of its steps: show what will be sent, ask, write the audit entry, send, report. Running the same
command again continues where it stopped. Knows no producer.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.kafka.audit import Audit
from redrive.cli.kafka.options import (
    Disposition,
    Exception_,
    First,
    Header,
    Key,
    Last,
    MaxReplays,
    Partition,
    Servers,
    Since,
    Topic,
    Until,
    config_of,
    filter_of,
)  # fmt: skip
from redrive.cli.options import AsJson, By, Reason, Yes
from redrive.cli.output import emit, letters, note, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redrive.sources.kafka.replay.filter import Filter
    from redrive.sources.kafka.replay.replay import ReplayReport


Everything = Annotated[bool, typer.Option("--all", help="Replay all dead letters; required if no filter is given.")]
Allow = Annotated[
    list[str] | None, typer.Option(help="A further topic that dead letters may be sent to; may be repeated.")
]
Rate = Annotated[float | None, typer.Option(min=0.1, help="Send at most this many letters per second.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count what would be sent, and send nothing.")]
Transactional = Annotated[
    bool, typer.Option("--transactional", help="Send letters and commit progress in one Kafka transaction.")
]


def replay(
    ctx: typer.Context, topic: Topic, *, servers: Servers = None, disposition: Disposition = None,
    exception: Exception_ = None, key: Key = None, header: Header = None, since: Since = None, until: Until = None,
    partition: Partition = None, first: First = None, last: Last = None,
    everything: Everything = False, allow: Allow = None, max_replays: MaxReplays = 3, rate: Rate = None,
    dry_run: DryRun = False, transactional: Transactional = False,
    reason: Reason = "", by: By = "", yes: Yes = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Send dead letters back to the topic they came from. Run the same command again to continue after a stop."""
    from redrive.sources.kafka.replay import replay as replays
    from redrive.sources.kafka.replay.other_replays import other_replays

    wanted = filter_of(
        disposition=disposition, exception=exception, key=key, header=header, since=since, until=until,
        partition=partition, first=first, last=last,
    )  # fmt: skip
    _check(wanted, everything=everything, dry_run=dry_run)
    config = config_of(servers)
    options: dict[str, Any] = {
        "allowed": tuple(allow or ()), "max_replays": max_replays, "earlier": other_replays(config, topic, wanted),
    }  # fmt: skip
    if dry_run:
        return _tell(replays.replay(config, topic, wanted, dry_run=True, **options), dry_run=True, as_json=as_json)
    if not yes:
        _ask(replays.replay(config, topic, wanted, dry_run=True, **options), topic)
    audit = Audit(ctx, "kafka replay", f"{topic} {wanted.text}", by, reason)
    audit.begin()
    options |= {"rate": rate, "transactional": transactional}
    with _stopped_gently() as is_stopping, audit.counted() as done:
        report = replays.replay(config, topic, wanted, is_stopping=is_stopping, report=done, **options)
    _tell(report, dry_run=False, as_json=as_json)
    if report.stopped:
        note("redrive: stopped before the end; the same command continues from here")
        raise typer.Exit(1)
    return None


# ---------------------------------------------------------------------- asking and telling


def _check(wanted: Filter, *, everything: bool, dry_run: bool) -> None:
    from redrive.sources.kafka.replay.filter import Filter

    if wanted == Filter() and not everything and not dry_run:
        raise typer.BadParameter("which dead letters? give a filter such as --exception or --since, or --all")
    if wanted != Filter() and everything:
        raise typer.BadParameter("--all and a filter exclude each other; leave one of them out")


def _ask(preview: ReplayReport, topic: str) -> None:
    """Show what would be sent, and ask; raise typer.Abort unless the operator agrees."""
    if preview.replayed:
        for line in _lines(preview, dry_run=True):
            note(line)
        typer.confirm(f"send {letters(preview.replayed)} of {topic} back?", abort=True, err=True)


def _tell(report: ReplayReport, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        return emit(_numbers(report, dry_run=dry_run))
    for line in _lines(report, dry_run=dry_run):
        say(line)
    return None


def _numbers(report: ReplayReport, *, dry_run: bool) -> dict[str, Any]:
    return {
        "seen": report.seen, "replayed": report.replayed, "left": report.left, "too_often": report.too_often,
        "parked": report.too_often,  # the name of too_often until 0.1

        "refused": report.refused, "sent_before": report.sent_before,
        "by_disposition": dict(report.by_disposition), "by_exception": dict(report.by_exception),
        "dry_run": dry_run,
    }  # fmt: skip


def _lines(report: ReplayReport, *, dry_run: bool) -> Iterator[str]:
    for name, count in [*report.by_disposition.most_common(), *report.by_exception.most_common()]:
        yield f"{count:>8}  {name or '-'}"
    verb = "would be replayed" if dry_run else "replayed"
    too_often = f"{report.too_often} replayed too often"
    yield f"{report.replayed} {verb}, {report.left} not chosen, {too_often}, of {report.seen}"
    if before := report.sent_before:
        yield f"{before} of them {'was' if before == 1 else 'were'} sent before by another replay"
    if report.refused:
        yield f"a replay stops at the first of {report.refused} that it may not send: {report.refusal}"


# ---------------------------------------------------------------------- stopping


@contextmanager
def _stopped_gently() -> Iterator[Callable[[], bool]]:
    """Catch the first SIGINT or SIGTERM, so that progress is committed before the command ends."""
    import signal
    import threading

    asked = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}

    def ask(number: int, _frame: object) -> None:
        asked.set()
        signal.signal(number, before[number])  # the second one interrupts

    for number in numbers:
        signal.signal(number, ask)
    try:
        yield asked.is_set
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
