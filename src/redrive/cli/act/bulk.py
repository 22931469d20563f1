"""
How a verb acts on letters from the command line.

Owns the order of things: say what will be done, ask, keep a plan, carry it out with a progress
bar, report. Safe to kill: the plan's id is printed first, and `--resume` goes on with it.
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
from redrive.cli.session import author, with_store
from redrive.cli.tables import cell
from redrive.errors import MoveRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redrive.core.plan import Plan
    from redrive.desk.act import Done
    from redrive.desk.plan import Preview
    from redrive.stores.contract import Store

_COUNT = 10_000
_KINDS = 5  # named in a preview; the question below it must stay on the screen
_EXACT = 100_000_000  # a purge cannot be undone, so its letters are counted to the last


class Order(msgspec.Struct, frozen=True, kw_only=True):
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
    resume: str = ""
    as_json: bool = False

    @property
    def typed(self) -> bool:
        """Whether the number of letters must be typed."""
        return self.verb == "purge"


def carry_out(ctx: typer.Context, order: Order) -> None:
    """Do what *order* says, after asking; print what it came to."""
    _check(order)
    order = msgspec.structs.replace(order, by=author(ctx, order.by))
    if order.resume:
        done = with_store(ctx, lambda store: _run(store, order, order.resume))
    elif order.ids:
        _ask(order, len(order.ids), "")
        done = with_store(ctx, lambda store: _by_id(store, order))
    else:
        done = _by_query(ctx, order)
    if order.verb == "replay" and done.acted and with_store(ctx, _wait_for_kafka):
        note("letters of Kafka topics go home while `redrive kafka collect` runs, or a worker with send_home")
    if order.wait is not None:
        seconds = order.wait
        done = msgspec.structs.replace(done, outcome=with_store(ctx, lambda store: wait_for(store, done, seconds)))
    _report(order, done)
    if done.outcome is not None and not done.outcome.healthy:
        raise typer.Exit(1)


def _check(order: Order) -> None:
    if order.wait is not None and order.ids:
        raise typer.BadParameter("--wait follows the letters of a plan; name them by -q, such as -q id:ID")
    ways = bool(order.ids) + bool(order.query.strip()) + bool(order.resume)
    if ways == 1:
        return
    offer = (
        "give ids, or -q QUERY, or --resume PLAN" if not ways else "ids, -q or --group, and --resume exclude each other"
    )
    raise typer.BadParameter(f"which letters? {offer}; an empty query never acts")


async def _wait_for_kafka(store: Store) -> bool:
    """Say whether letters that were collected from Kafka wait to be sent home: no worker of the user's does that."""
    from redrive.core.query import parse

    return bool((await store.find(parse("status:pending kind:kafka"), limit=1, payloads=False)).letters)


# ---------------------------------------------------------------------- by query


def _by_query(ctx: typer.Context, order: Order) -> Done:
    from redrive.desk import plan as plans

    at_most = _EXACT if order.typed else _COUNT
    preview = with_store(ctx, lambda store: plans.preview(store, order.verb, order.query, at_most=at_most))
    limit = min(filter(None, (order.canary, preview.count if order.typed else None)), default=None)
    if not order.as_json:
        _print_preview(preview, order)
    if not preview.count:
        return _nothing(order)
    _ask(order, preview.count if limit is None else min(limit, preview.count), "at least " if preview.at_least else "")

    async def work(store: Store) -> Done:
        plan = await plans.start(store, order.verb, order.query, by=order.by, reason=order.reason, limit=limit)
        note(f"plan {plan.id}; if this is interrupted, go on with: redrive {order.verb} --resume {plan.id}")
        return await _run(store, order, plan.id, total=_total(preview, limit))

    return with_store(ctx, work)


def _total(preview: Preview, limit: int | None) -> int | None:
    if preview.at_least:
        return limit
    return preview.count if limit is None else min(limit, preview.count)


async def _run(store: Store, order: Order, plan_id: str, total: int | None = None) -> Done:
    from redrive.desk import plan as plans
    from redrive.desk.act import done

    kept = await store.plan(plan_id)
    if kept.verb != order.verb:
        raise MoveRefused(
            f"cannot {order.verb} by plan {plan_id!r}: it was made to {kept.verb}; "
            f"go on with `redrive {kept.verb} --resume {plan_id}`"
        )
    with _progress(order, total) as advance:
        return done(await plans.carry_out(store, plan_id, rate=order.rate, progress=advance))


@contextmanager
def _progress(order: Order, total: int | None) -> Iterator[Callable[[Plan], object]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    screen = Console(file=sys.stderr, markup=False, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, disable=order.as_json or not screen.is_terminal) as bar:
        task = bar.add_task(order.verb, total=total)
        yield lambda plan: bar.update(task, completed=plan.acted)


# ---------------------------------------------------------------------- by id


async def _by_id(store: Store, order: Order) -> Done:
    from redrive.desk.act import act

    return await act(store, order.verb, order.ids, by=order.by, reason=order.reason)


# ---------------------------------------------------------------------- asking and telling


def _print_preview(preview: Preview, order: Order) -> None:
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


def _ask(order: Order, count: int, hedge: str) -> None:
    """Ask; raise typer.Abort or MoveRefused unless the operator agrees."""
    if order.typed:
        _ask_for_number(order, count)
    elif not order.yes and (order.query or len(order.ids) > 1):
        typer.confirm(f"{order.verb} {hedge}{letters(count)}?", abort=True, err=True)


def _ask_for_number(order: Order, count: int) -> None:
    if order.yes and order.confirm is None:
        raise MoveRefused(f"cannot purge {letters(count)}: add --confirm {count} to --yes, or answer the question")
    typed = order.confirm
    if typed is None:
        typed = typer.prompt(
            f"purge cannot be undone; type the number of letters ({count}) to purge them", type=int, err=True
        )
    if typed != count:
        raise MoveRefused(f"cannot purge: {letters(count)} would go and {typed} was typed; nothing was purged")


def _nothing(order: Order) -> Done:
    from redrive.desk.act import Done

    return Done(
        verb=order.verb, acted=0, skipped=0, done=True, plan=None, query=order.query, by=order.by, reason=order.reason
    )


def _report(order: Order, done: Done) -> None:
    if order.as_json:
        return emit(done)
    skipped = f", {done.skipped} skipped because they had moved on" if done.skipped else ""
    say(f"{done.verb}: {letters(done.acted)}{skipped}" if done.acted or skipped else f"{done.verb}: nothing to do")
    if done.outcome is None:
        return say_where_to_look(done)
    return say_outcome(done.outcome, done, canary=order.canary is not None)
