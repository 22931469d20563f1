"""`redrive explain`: why a letter is in its status, and what another policy would have done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import AsJson, Wide
from redrive.cli.output import emit, say, tell
from redrive.cli.session import with_desk
from redrive.cli.tables import show_table
from redrive.cli.typed import typed

if TYPE_CHECKING:
    from redrive.desk.look.explain import Explanation, TryExplained, WhatIf

_COLUMNS = ("try", "at", "error", "category", "then", "waited s")  # the story above has the rest, a line a try


def explain(
    ctx: typer.Context,
    letter_id: Annotated[str, typer.Argument(metavar="ID", callback=typed, help="The letter's id.")],
    policy: Annotated[
        str | None,
        typer.Option(
            "--what-if",
            metavar="POLICY",
            help="What another policy would have done, such as exponential:max_attempts=8.",
        ),
    ] = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Explain why a letter is in its status, rule by rule."""
    from redrive.core.policy import RetryPolicy

    wanted = None if policy is None else RetryPolicy.parse(policy)
    if wanted is not None:
        answer = with_desk(ctx, lambda desk: desk.what_if(letter_id, wanted))
        return emit(answer) if as_json else _print_what_if(answer)
    explanation = with_desk(ctx, lambda desk: desk.explain(letter_id))
    return emit(explanation) if as_json else _print(explanation, wide=wide)


def _print(found: Explanation, *, wide: bool) -> None:
    for line in found.story:
        tell(line)
    tries = found.tries
    if tries and wide:
        rows = [(*_row(one), one.wait, one.capped, one.rule, one.policy, one.error) for one in tries]
        show_table("", (*_COLUMNS, "formula s", "capped s", "rule", "policy", "message"), rows, wide=True)
    elif tries:
        show_table("", _COLUMNS, [_row(one) for one in tries])
    if found.traceback:
        say(found.traceback, lines=True)


def _row(one: TryExplained) -> tuple[object, ...]:
    return one.attempt, one.at, one.error_type, one.category, one.why, one.delay


def _print_what_if(answer: WhatIf) -> None:
    rows = [
        (
            f"{one.attempt}{' (supposed)' if one.assumed else ''}",
            one.error_type,
            one.delay,
            f"{one.least:.3g} to {one.most:.3g}",
            f"{one.to}: {one.why}",
        )
        for one in answer.tries
    ]
    show_table(f"with {answer.policy}", ("try", "error", "waits s", "possible s", "then"), rows)
    say(answer.ends)
