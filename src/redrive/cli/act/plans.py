"""`redrive plan`: list, run, pause, resume and halt plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.act.bulk import follow
from redrive.cli.options import AsJson, By, Limit, Rate, Reason, Wide
from redrive.cli.output import emit, note, say
from redrive.cli.session import opened, with_desk
from redrive.cli.tables import show_facts, show_table
from redrive.cli.typed import typed

if TYPE_CHECKING:
    from redrive.cli.session import Session
    from redrive.desk.act.plan import PlanView

_COLUMNS = ("plan", "verb", "state", "letters", "by", "reason", "query", "created")
_STATES = ("running", "paused", "halted", "done")
Plan = Annotated[str, typer.Argument(metavar="PLAN", callback=typed, help="The id of the plan.")]


def _state(name: str | None) -> str | None:
    if name is not None and name not in _STATES:
        raise typer.BadParameter(f"{name!r} is no state of a plan; use {', '.join(_STATES[:-1])} or {_STATES[-1]}")
    return name


State = Annotated[
    str | None, typer.Option("--state", callback=_state, help="Plans that are running, paused, halted or done.")
]

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="List, run, pause, resume and halt plans.")


@app.command()
def ls(ctx: typer.Context, state: State = None, limit: Limit = 50, wide: Wide = False, as_json: AsJson = False) -> None:
    """List plans, newest first."""
    from redrive.desk.act.plan import Plans

    found = Plans(plans=with_desk(ctx, lambda desk: desk.plans(state, limit=limit)))
    if as_json:
        return emit(found)
    if not found.plans:
        return say("no plans match")
    return show_table("", _COLUMNS, [_row(one) for one in found.plans], wide=wide, spare="reason")


@app.command()
def show(ctx: typer.Context, plan: Plan, as_json: AsJson = False) -> None:
    """Show a plan: what it does, and how far it is."""
    from redrive.desk.act.plan import view

    found = view(with_desk(ctx, lambda desk: desk.plan(plan)))
    if as_json:
        return emit(found)
    names = ("id", "verb", "query", "by", "reason", "state", "acted", "skipped", "limit", "rate", "generation")
    rows = [(name, getattr(found, name)) for name in (*names, "holder", "created_at")]
    return show_facts((name, value) for name, value in rows if value not in (None, ""))


@app.command()
def run(ctx: typer.Context, plan: Plan, rate: Rate = None, by: By = "", as_json: AsJson = False) -> None:
    """Carry out a plan to its end, and wait for it. A paused plan is resumed."""
    follow(ctx, plan, rate=rate, by=by, as_json=as_json)


@app.command()
def pause(ctx: typer.Context, plan: Plan, reason: Reason = "", by: By = "", as_json: AsJson = False) -> None:
    """Stop a plan after its current page. `resume` lets it go on."""
    with opened(ctx, by=by) as session:
        changed = session.run(session.desk.pause_plan(plan, reason=reason))
    _report(changed, as_json=as_json)


@app.command()
def resume(
    ctx: typer.Context, plan: Plan, rate: Rate = None, reason: Reason = "", by: By = "", as_json: AsJson = False
) -> None:
    """Let workers go on with a plan. Does not wait for it."""
    with opened(ctx, by=by) as session:
        changed = session.run(session.desk.resume_plan(plan, reason=reason, rate=rate))
        note_if_no_worker(session, plan)
    _report(changed, as_json=as_json)


@app.command()
def halt(ctx: typer.Context, plan: Plan, reason: Reason = "", by: By = "", as_json: AsJson = False) -> None:
    """End a plan after its current page. It cannot be resumed."""
    with opened(ctx, by=by) as session:
        changed = session.run(session.desk.halt_plan(plan, reason=reason))
    _report(changed, as_json=as_json)


def note_if_no_worker(session: Session, plan: str) -> None:
    """Say how to go on where no worker would carry out a plan."""
    if not any(worker.alive for worker in session.run(session.desk.stats(weeks=0)).workers):
        note(f"no worker runs now: the plan waits for one, or carry it out with: redrive plan run {plan}")


def _report(changed: PlanView, *, as_json: bool) -> None:
    if as_json:
        return emit(changed)
    return say(f"plan {changed.id} is {changed.state}")


def _row(one: PlanView) -> tuple[object, ...]:
    return one.id, one.verb, one.state, one.acted, one.by, one.reason, one.query, one.created_at
