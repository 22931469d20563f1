"""
`redrive kafka replay` and `release`: dead letters back to the topics they came from.

Owns the order of things: say what will be sent, ask, write down who does it and why, send, report. The
audit log is that of the store; where there is none, the command says so. The same command goes on where
it stood.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    choice_of,
    config_of,
    plain_key,
)  # fmt: skip
from redrive.cli.options import AsJson, By, Reason, Yes
from redrive.cli.output import emit, letters, note, say
from redrive.cli.session import absent_file, author, settings_of, with_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redrive.sources.kafka.replay.filter import Choice
    from redrive.sources.kafka.replay.replay import Receipt


def replay(
    ctx: typer.Context, topic: Topic, *, servers: Servers = None, disposition: Disposition = None,
    exception: Exception_ = None, key: Key = None, header: Header = None, since: Since = None, until: Until = None,
    partition: Partition = None, first: First = None, last: Last = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them; without a filter this must be said.")] = False,
    allow: Annotated[list[str] | None, typer.Option(help="Another topic that may be written to.")] = None,
    max_replays: MaxReplays = 3,
    rate: Annotated[float | None, typer.Option(min=0.1, help="So many a second.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    transactional: Annotated[bool, typer.Option("--transactional", help="Send each once, whatever happens.")] = False,
    reason: Reason = "", by: By = "", yes: Yes = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Send dead letters back to the topic they came from. The same command goes on where it stood."""
    from redrive.sources.kafka.replay import replay as replays
    from redrive.sources.kafka.replay.other_replays import earlier_replays

    choice = choice_of(
        disposition=disposition, exception=exception, key=key, header=header, since=since, until=until,
        partition=partition, first=first, last=last,
    )  # fmt: skip
    _check(choice, everything=everything, dry_run=dry_run)
    config = config_of(servers)
    options: dict[str, Any] = {
        "allowed": tuple(allow or ()), "max_replays": max_replays, "earlier": earlier_replays(config, topic, choice),
    }  # fmt: skip
    if dry_run:
        return _tell(replays.replay(config, topic, choice, dry_run=True, **options), dry_run=True, as_json=as_json)
    if not yes:
        _ask(replays.replay(config, topic, choice, dry_run=True, **options), topic)
    audit = _Audit(ctx, "kafka replay", f"{topic} {choice.text}", by, reason)
    audit.begin()
    options |= {"rate": rate, "transactional": transactional}
    with _stopped_gently() as is_stopping, audit.told() as done:
        receipt = replays.replay(config, topic, choice, is_stopping=is_stopping, receipt=done, **options)
    _tell(receipt, dry_run=False, as_json=as_json)
    if receipt.stopped:
        note("redrive: stopped before the end; the same command goes on from here")
        raise typer.Exit(1)
    return None


def release(
    ctx: typer.Context,
    topic: Topic,
    key: Annotated[str, typer.Argument(help="The key that is parked, as `dlq parked` shows it.")],
    *,
    servers: Servers = None,
    max_replays: MaxReplays = 3,
    reason: Reason = "",
    by: By = "",
    as_json: AsJson = False,
) -> None:
    """Let the records of a parked key run again. Its dead letters are sent home first, in their order."""
    from redrive.sources.kafka.replay import replay as replays

    meant = plain_key(key) or ""
    audit = _Audit(ctx, "kafka release", f"{topic} {meant}", by, reason)
    audit.begin()
    with audit.told() as done:
        receipt = replays.release(config_of(servers), topic, meant, max_replays=max_replays)
        done.replayed = receipt.replayed
    if as_json:
        return emit({"topic": topic, "key": meant, "replayed": receipt.replayed})
    return say(f"released {meant!r}, {receipt.replayed} sent home")


# ---------------------------------------------------------------------- asking and telling


def _check(choice: Choice, *, everything: bool, dry_run: bool) -> None:
    from redrive.sources.kafka.replay.filter import Choice

    if choice == Choice() and not everything and not dry_run:
        raise typer.BadParameter("which dead letters? give a filter such as --exception or --since, or --all")
    if choice != Choice() and everything:
        raise typer.BadParameter("--all and a filter exclude each other; leave one of them out")


def _ask(preview: Receipt, topic: str) -> None:
    """Say what would be sent, and ask; raise typer.Abort unless the operator agrees."""
    if preview.replayed:
        for line in _lines(preview, dry_run=True):
            note(line)
        typer.confirm(f"send {letters(preview.replayed)} of {topic} home?", abort=True, err=True)


def _tell(receipt: Receipt, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        return emit(_numbers(receipt, dry_run=dry_run))
    for line in _lines(receipt, dry_run=dry_run):
        say(line)
    return None


def _numbers(receipt: Receipt, *, dry_run: bool) -> dict[str, Any]:
    return {
        "seen": receipt.seen, "replayed": receipt.replayed, "left": receipt.left, "parked": receipt.parked,
        "refused": receipt.refused, "sent_before": receipt.sent_before,
        "by_disposition": dict(receipt.by_disposition), "by_exception": dict(receipt.by_exception),
        "dry_run": dry_run,
    }  # fmt: skip


def _lines(receipt: Receipt, *, dry_run: bool) -> Iterator[str]:
    for name, count in [*receipt.by_disposition.most_common(), *receipt.by_exception.most_common()]:
        yield f"{count:>8}  {name or '-'}"
    verb = "would be replayed" if dry_run else "replayed"
    too_often = f"{receipt.parked} replayed too often"
    yield f"{receipt.replayed} {verb}, {receipt.left} not chosen, {too_often}, of {receipt.seen}"
    if before := receipt.sent_before:
        yield f"{before} of them {'was' if before == 1 else 'were'} sent before by another replay"
    if receipt.refused:
        yield f"a replay stops at the first of {receipt.refused} that it may not send: {receipt.refusal}"


# ---------------------------------------------------------------------- who did it, and why


class _Audit:
    """What the audit log says of one act: that it begins, and how many letters it sent, however it ended."""

    def __init__(self, ctx: typer.Context, verb: str, target: str, by: str, reason: str) -> None:
        self._ctx, self._verb, self._target, self._reason = ctx, verb, target, reason
        self._by = author(ctx, by)
        url = settings_of(ctx).url
        self._is_kept = not url.startswith("memory:") and absent_file(url) is None

    def begin(self) -> None:
        """Write that it begins, before anything is sent; say so if nothing will be written."""
        if not self._is_kept:
            note("redrive: this is not written to an audit log, because there is no store; name one with --url, "
                 "or make it with `redrive migrate`")  # fmt: skip
        self._write(f"plan {self._verb}", 0)

    @contextmanager
    def told(self) -> Iterator[Receipt]:
        """Write how many letters the receipt counts, also if sending them broke off."""
        from redrive.sources.kafka.replay.replay import Receipt

        receipt = Receipt()
        try:
            yield receipt
        finally:
            self._write(self._verb, receipt.replayed)

    def _write(self, verb: str, count: int) -> None:
        if self._is_kept:
            with_store(self._ctx, lambda store: store.record(self._by, verb, self._target, count, self._reason))


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
