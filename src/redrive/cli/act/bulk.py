"""
How a verb acts on letters from the command line.

Owns the order of things: show what will be done, ask, keep a plan, follow it with a progress bar, report.
It is safe to kill: the plan's id is printed first, a worker that has taken it goes on, and `redrive plan run` goes on
with it otherwise. Knows no store, only its desk.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
import typer

from redrive.cli.act.outcome import say_outcome, say_where_to_look, wait_for
from redrive.cli.look.letters import sample_table
from redrive.cli.output import emit, letters, note, say
from redrive.cli.session import opened
from redrive.cli.tables import cell
from redrive.errors import MoveRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redrive.cli.session import Session
    from redrive.core.plan import Plan
    from redrive.desk.act.acts import Done
    from redrive.desk.act.plan import Preview
    from redrive.desk.desk import Desk

_COUNT = 10_000
_KINDS = 5  # named in a preview; the question below it must stay on the screen
_EXACT = 100_000_000  # a purge cannot be undone, so its letters are counted to the last


class BulkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator asked for."""

    verb: str
    ids: tuple[str, ...] = ()
    query: str = ""
    reason: str = ""
    by: str = ""
    yes: bool = False
    confirm: int | None = None  # purge: the number of letters, given in advance
    rate: float | None = None
    canary: int | None = None
    wait: float | None = None  # replay: seconds until the letters must have come to rest
    detach: bool = False
    resume: str = ""
    as_json: bool = False

    @property
    def typed(self) -> bool:
        """Whether the number of letters must be typed."""
        return self.verb == "purge"


def carry_out(ctx: typer.Context, order: BulkOrder) -> None:
    """Do what *order* says, after asking; print what it came to."""
    _check(order)
    with opened(ctx, by=order.by) as session:
        done = _acted(session, order)
        if order.verb == "replay" and done.acted and session.run(_wait_for_kafka(session.desk)):
            note(
                "letters of Kafka topics are sent back while `redrive kafka collect` runs, or a worker with a publisher"
            )
        if order.wait is not None:
            seen = session.run(wait_for(session.desk, done, order.wait))
            done = msgspec.structs.replace(done, outcome=seen)
    _report(order, done)
    if _is_short_of(done, detached=order.detach):
        raise typer.Exit(1)


def follow(ctx: typer.Context, plan_id: str, *, rate: float | None, by: str, as_json: bool) -> None:
    """Have a plan of any verb carried out to its end; print what it came to."""
    with opened(ctx, by=by) as session:
        kept = session.run(session.desk.plan(plan_id))
        order = BulkOrder(verb=kept.verb, resume=plan_id, rate=rate, as_json=as_json)
        done = session.run(_run(session.desk, order, plan_id))
    _report(order, done)
    if _is_short_of(done):
        raise typer.Exit(1)


def _is_short_of(done: Done, *, detached: bool = False) -> bool:
    """Say whether not all was done that was asked for."""
    if done.outcome is not None and not done.outcome.healthy:
        return True
    return not done.done and not detached


def _acted(session: Session, order: BulkOrder) -> Done:
    if order.resume:
        return session.run(_run(session.desk, order, order.resume))
    if order.ids:
        _ask(order, len(order.ids), "")
        return session.run(session.desk.act(order.verb, *order.ids, reason=order.reason))
    return _by_query(session, order)


def _check(order: BulkOrder) -> None:
    if order.wait is not None and order.ids:
        raise typer.BadParameter("--wait follows the letters of a plan; name them by -q, such as -q id:ID")
    if order.detach and (order.ids or order.wait is not None):
        raise typer.BadParameter("--detach leaves a plan to workers: name letters by -q, and leave out --wait")
    ways = bool(order.ids) + bool(order.query.strip()) + bool(order.resume)
    if ways == 1:
        return
    offer = (
        "give ids, or -q QUERY, or --resume PLAN" if not ways else "ids, -q or --group, and --resume exclude each other"
    )
    raise typer.BadParameter(f"which letters? {offer}; an empty query acts on none")


async def _wait_for_kafka(desk: Desk) -> bool:
    """Say whether letters collected from Kafka wait to be sent back: not every worker does that."""
    return bool((await desk.ls("status:pending kind:kafka,kafka.*", limit=1, payloads=False)).letters)


# ---------------------------------------------------------------------- by query


def _by_query(session: Session, order: BulkOrder) -> Done:
    from redrive.desk.act.acts import nothing

    desk, at_most = session.desk, _EXACT if order.typed else _COUNT
    preview = session.run(desk.preview(order.verb, order.query, at_most=at_most))
    limit = min(filter(None, (order.canary, preview.count if order.typed else None)), default=None)
    if not order.as_json:
        _print_preview(preview, order)
    if not preview.count:
        return nothing(order.verb, order.query, by=desk.by, reason=order.reason)
    _ask(order, preview.count if limit is None else min(limit, preview.count), "at least " if preview.at_least else "")
    asked = desk.start(order.verb, order.query, reason=order.reason, limit=limit, rate=order.rate, paused=False)
    plan = session.run(asked)
    if order.detach:
        return _detached(session, plan)
    note(f"plan {plan.id}; if this is interrupted, go on with: redrive plan run {plan.id}")
    return session.run(_run(desk, order, plan.id, total=_total(preview, limit)))


def _detached(session: Session, plan: Plan) -> Done:
    from redrive.cli.act.plans import note_if_no_worker
    from redrive.desk.act.acts import done

    note(f"plan {plan.id}; look at it with: redrive plan show {plan.id}")
    note_if_no_worker(session, plan.id)
    return done(plan)


def _total(preview: Preview, limit: int | None) -> int | None:
    if preview.at_least:
        return limit
    return preview.count if limit is None else min(limit, preview.count)


async def _run(desk: Desk, order: BulkOrder, plan_id: str, total: int | None = None) -> Done:
    from redrive.desk.act.acts import done

    kept = await desk.plan(plan_id)
    if kept.verb != order.verb:
        raise MoveRefused(
            f"cannot {order.verb} by plan {plan_id!r}: it was made to {kept.verb}; "
            f"go on with `redrive plan run {plan_id}`"
        )
    with _progress(order, total) as advance:
        return done(await desk.carry_out(plan_id, rate=order.rate, progress=advance))


@contextmanager
def _progress(order: BulkOrder, total: int | None) -> Iterator[Callable[[Plan], object]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    screen = Console(file=sys.stderr, markup=False, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, disable=order.as_json or not screen.is_terminal) as bar:
        task = bar.add_task(order.verb, total=total)
        yield lambda plan: bar.update(task, completed=plan.acted)


# ---------------------------------------------------------------------- asking and telling


def _print_preview(preview: Preview, order: BulkOrder) -> None:
    hedge = "at least " if preview.at_least else ""
    say(f"{order.verb}: {hedge}{letters(preview.count)} matching {cell(preview.query)}")
    if preview.kinds:
        say(_kinds(preview.kinds))
    if preview.sample:
        sample_table("for example", preview.sample)
    if order.canary:
        say(f"as a canary: at most {order.canary} of them")


def _kinds(counts: dict[str, int]) -> str:
    named = [f"{cell(kind)} ({count})" for kind, count in list(counts.items())[:_KINDS]]
    more = len(counts) - len(named)
    return f"kinds: {', '.join(named)}{f' and {more} more' if more else ''}"


def _ask(order: BulkOrder, count: int, hedge: str) -> None:
    """Ask; raise typer.Abort or MoveRefused unless the operator agrees."""
    if order.typed:
        _ask_for_number(order, count)
    elif not order.yes and (order.query or len(order.ids) > 1):
        typer.confirm(f"{order.verb} {hedge}{letters(count)}?", abort=True, err=True)


def _ask_for_number(order: BulkOrder, count: int) -> None:
    if order.yes and order.confirm is None:
        raise MoveRefused(f"cannot purge {letters(count)}: add --confirm {count} to --yes, or answer the question")
    typed = order.confirm
    if typed is None:
        typed = typer.prompt(
            f"purge cannot be undone; type the number of letters ({count}) to purge them", type=int, err=True
        )
    if typed != count:
        raise MoveRefused(f"cannot purge: {letters(count)} match and {typed} was typed, so nothing was purged")


def _where_it_stands(done: Done) -> str:
    match done.state:
        case "paused":
            return f"; an operator paused the plan: go on with `redrive plan resume {done.plan}`"
        case "halted":
            return "; an operator halted the plan"
        case "running":
            return "; a worker carries out the plan"
    return ""


def _report(order: BulkOrder, done: Done) -> None:
    if order.as_json:
        return emit(done)
    skipped = f", {done.skipped} skipped because their status had changed" if done.skipped else ""
    is_over = done.state == "done"
    told = f"{letters(done.acted)}{skipped}" if done.acted or skipped or not is_over else "nothing to do"
    say(f"{done.verb}: {told}{_where_it_stands(done)}")
    if done.outcome is None:
        return say_where_to_look(done)
    return say_outcome(done.outcome, done, canary=order.canary is not None)
