"""`redrive audit`: who did what."""

from __future__ import annotations

import typer

from redrive.cli.options import AsJson, Limit, Wide
from redrive.cli.output import emit, say
from redrive.cli.session import with_desk
from redrive.cli.tables import show_table
from redrive.core.letter.ids import short


def audit(ctx: typer.Context, limit: Limit = 100, wide: Wide = False, as_json: AsJson = False) -> None:
    """List the newest acts of operators, newest first."""
    from redrive.desk.look.audit import AuditLog

    log = AuditLog(entries=with_desk(ctx, lambda desk: desk.audit(limit=limit)))
    if as_json:
        return emit(log)
    name = str if wide else short  # of a letter; plans and queues keep theirs
    rows = [(one.seq, one.at, one.by, one.verb, name(one.target), one.count, one.reason) for one in log.entries]
    if not rows:
        return say("no operator has acted yet")
    return show_table("", ("#", "at", "by", "did", "to", "letters", "reason"), rows, wide=wide)
