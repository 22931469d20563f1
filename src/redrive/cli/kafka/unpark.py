"""
`redrive kafka unpark`: let the records of a parked key run again.

Owns the command, and its old name `release`, which stays for one version. Knows no order of replays.
"""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.kafka.audit import Audit
from redrive.cli.kafka.options import MaxReplays, Servers, Topic, config_of, plain_key
from redrive.cli.options import AsJson, By, Reason
from redrive.cli.output import emit, note, say

ParkedKey = Annotated[str, typer.Argument(metavar="KEY", help="The parked key, as `dlq parked` shows it.")]


def unpark(
    ctx: typer.Context,
    topic: Topic,
    key: ParkedKey,
    *,
    servers: Servers = None,
    max_replays: MaxReplays = 3,
    reason: Reason = "",
    by: By = "",
    as_json: AsJson = False,
) -> None:
    """Let the records of a parked key run again. Sends its dead letters back first, in order."""
    from redrive.sources.kafka.replay import unpark as parked

    meant = plain_key(key) or ""
    audit = Audit(ctx, "kafka unpark", f"{topic} {meant}", by, reason)
    audit.begin()
    with audit.counted() as done:
        report = parked.unpark(config_of(servers), topic, meant, max_replays=max_replays)
        done.replayed = report.replayed
    if as_json:
        return emit({"topic": topic, "key": meant, "replayed": report.replayed})
    return say(f"unparked {meant!r}, {report.replayed} sent back")


def release(
    ctx: typer.Context,
    topic: Topic,
    key: ParkedKey,
    *,
    servers: Servers = None,
    max_replays: MaxReplays = 3,
    reason: Reason = "",
    by: By = "",
    as_json: AsJson = False,
) -> None:
    """Let the records of a parked key run again. This is the old name of `unpark`."""
    note("redrive: `redrive kafka release` is now `redrive kafka unpark`; the old name goes with the next version")
    unpark(ctx, topic, key, servers=servers, max_replays=max_replays, reason=reason, by=by, as_json=as_json)
