"""`redrive replay`, `archive`, `restore`, `cancel`, `purge`: one order each; `bulk` carries it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.act.bulk import BulkOrder, carry_out
from redrive.cli.options import (
    AsJson,
    By,
    Canary,
    Detach,
    Group,
    Ids,
    Query,
    Rate,
    Reason,
    Resume,
    Wait,
    WaitSeconds,
    Yes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Confirm = Annotated[int | None, typer.Option("--confirm", metavar="N", help="The number of letters to purge.")]


def _command(verb: str, promise: str) -> Callable[..., None]:
    """Return the command of *verb*: these verbs differ by a word, and by nothing else."""

    def command(
        ctx: typer.Context,
        ids: Ids = None,
        *,
        query: Query = "",
        group: Group = "",
        rate: Rate = None,
        canary: Canary = None,
        reason: Reason = "",
        by: By = "",
        yes: Yes = False,
        detach: Detach = False,
        resume: Resume = "",
        as_json: AsJson = False,
    ) -> None:
        asked = {"rate": rate, "canary": canary, "reason": reason, "by": by, "yes": yes, "detach": detach}
        carry_out(ctx, _order(verb, ids, query, group, as_json=as_json, resume=resume, **asked))

    command.__name__, command.__doc__ = verb, promise
    return command


def replay(
    ctx: typer.Context,
    ids: Ids = None,
    *,
    query: Query = "",
    group: Group = "",
    rate: Rate = None,
    canary: Canary = None,
    wait: Wait = False,
    wait_seconds: WaitSeconds = None,
    reason: Reason = "",
    by: By = "",
    yes: Yes = False,
    detach: Detach = False,
    resume: Resume = "",
    as_json: AsJson = False,
) -> None:
    """Give failed letters another cycle. Id, idempotency key and history are kept."""
    from redrive.desk.act.outcome import WAIT

    limit = WAIT if wait and wait_seconds is None else wait_seconds
    asked = {"rate": rate, "canary": canary, "wait": limit, "reason": reason, "by": by, "yes": yes, "detach": detach}
    carry_out(ctx, _order("replay", ids, query, group, as_json=as_json, resume=resume, **asked))


archive = _command("archive", "Put away failed letters that need no handling. `restore` brings them back.")
cancel = _command("cancel", "Archive pending letters before they run. `restore` brings them back.")
restore = _command("restore", "Bring archived letters back. They return to where they were archived from.")


def purge(
    ctx: typer.Context,
    ids: Ids = None,
    *,
    query: Query = "",
    group: Group = "",
    rate: Rate = None,
    reason: Reason = "",
    by: By = "",
    yes: Yes = False,
    confirm: Confirm = None,
    detach: Detach = False,
    resume: Resume = "",
    as_json: AsJson = False,
) -> None:
    """Delete archived letters; this cannot be undone. Asks for their number, or takes it by --yes --confirm N."""
    asked = {"rate": rate, "reason": reason, "by": by, "yes": yes, "confirm": confirm, "detach": detach}
    carry_out(ctx, _order("purge", ids, query, group, as_json=as_json, resume=resume, **asked))


def _order(verb: str, ids: list[str] | None, query: str, group: str, **asked: Any) -> BulkOrder:
    narrowed = f"{query} group:{group}".strip() if group else query
    return BulkOrder(verb=verb, ids=tuple(ids or ()), query=narrowed, **asked)
