"""
`redrive pipeline peek`, `replay`, `readmit` and `quarantine`: the letters of a node's lanes.

Owns the order of an act: show what will be sent, ask, send, report. Letters that were sent are not sent again by
another command. Knows no broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.options import AsJson, By, Reason, Yes
from redrive.cli.output import counted, emit, note, say
from redrive.cli.pipeline.extra import needs_pipeline
from redrive.cli.pipeline.operate.asking import DEFAULT_ENGINE, EngineOption, GraphOption, ServersOption, asked
from redrive.cli.pipeline.operate.letter_options import (
    Containing,
    Documents,
    ErrorTypes,
    Everything,
    NodeArgument,
    Since,
    Streams,
    Until,
    filter_message,
)
from redrive.cli.session import author

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count.")]
RateOption = Annotated[float | None, typer.Option("--rate", min=0.1, help="So many documents a second.")]
CanaryOption = Annotated[
    int, typer.Option("--canary", min=0, help="Send so many first; go on only if none of them fails again.")
]
Target = Annotated[str, typer.Option("--to", metavar="NODE", help="Send them to this node instead of their own.")]
Quarantined = Annotated[bool, typer.Option("--quarantine", help="Look into quarantine instead of the DLQ.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="At most this many.")]


@needs_pipeline
def peek(
    ctx: typer.Context, node: NodeArgument, *, quarantine: Quarantined = False, stream: Streams = None,
    doc: Documents = None, error: ErrorTypes = None, contains: Containing = "", since: Since = None,
    until: Until = None, limit: LimitOption = 20,
    body: Annotated[bool, typer.Option("--body", help="With --json: the documents' content too.")] = False,
    graph: GraphOption = None, engine: EngineOption = DEFAULT_ENGINE, servers: ServersOption = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Look at the dead letters of a node."""
    from redrive.cli.pipeline.operate.shown import as_values, letter_rows
    from redrive.cli.tables import show_table
    from redrive.sources.pipeline.protos import admin_pb2 as messages

    request = messages.PeekRequest(
        node_id=node, lane=messages.LANE_QUARANTINE if quarantine else messages.LANE_DLQ, limit=limit, with_body=body,
        filter=filter_message(stream, doc, error, contains, since, until),
    )  # fmt: skip
    found = asked(ctx, graph, engine, servers, lambda desk: desk.peek(request))
    if as_json:
        return emit(as_values(found))
    if not found.letters:
        return say(f"{node} has no such {'documents in quarantine' if quarantine else 'dead letters'}")
    show_table("", *letter_rows(found.letters))
    return note("there are more; see them with --limit") if found.more else None


def _sending_back(verb: str, promise: str) -> Callable[..., None]:
    """Return the command of *verb*: the two differ by the lane that they send back, and by nothing else."""

    @needs_pipeline
    def command(
        ctx: typer.Context, node: NodeArgument, *, stream: Streams = None, doc: Documents = None,
        error: ErrorTypes = None, contains: Containing = "", since: Since = None, until: Until = None,
        everything: Everything = False, to: Target = "", rate: RateOption = None, canary: CanaryOption = 0,
        dry_run: DryRun = False, reason: Reason = "", by: By = "", yes: Yes = False, graph: GraphOption = None,
        engine: EngineOption = DEFAULT_ENGINE, servers: ServersOption = None, as_json: AsJson = False,
    ) -> None:  # fmt: skip
        from redrive.sources.pipeline.protos.admin_pb2 import ReplayRequest

        request = ReplayRequest(
            node_id=node, to_node_id=to, rate=rate or 0.0, canary=canary, reason=reason, actor=author(ctx, by),
            filter=filter_message(stream, doc, error, contains, since, until, everything=everything),
        )  # fmt: skip
        _LaneAct(ctx, graph, engine, servers, verb, as_json=as_json).run(request, dry_run=dry_run, yes=yes)

    command.__name__, command.__doc__ = verb, promise
    return command


replay = _sending_back("replay", "Send dead letters of a node back to its input topic, or to another node.")
readmit = _sending_back("readmit", "Send documents in quarantine back to the input topic of their node, or of another.")


@needs_pipeline
def quarantine(
    ctx: typer.Context, node: NodeArgument, *, stream: Streams = None, doc: Documents = None,
    error: ErrorTypes = None, contains: Containing = "", since: Since = None, until: Until = None,
    everything: Everything = False, dry_run: DryRun = False, reason: Reason = "", by: By = "", yes: Yes = False,
    graph: GraphOption = None, engine: EngineOption = DEFAULT_ENGINE, servers: ServersOption = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Move dead letters of a node to its quarantine, where a replay does not find them."""
    from redrive.sources.pipeline.protos.admin_pb2 import QuarantineRequest

    request = QuarantineRequest(
        node_id=node, reason=reason, actor=author(ctx, by),
        filter=filter_message(stream, doc, error, contains, since, until, everything=everything),
    )  # fmt: skip
    _LaneAct(ctx, graph, engine, servers, "quarantine", as_json=as_json).run(request, dry_run=dry_run, yes=yes)


class _LaneAct:
    """One act on letters: preview, question, progress, report."""

    def __init__(
        self, ctx: typer.Context, graph: Path | None, engine: str, servers: str | None, verb: str, *, as_json: bool
    ) -> None:
        self._where, self._verb, self._as_json = (ctx, graph, engine, servers), verb, as_json

    def run(self, request: Any, *, dry_run: bool, yes: bool) -> None:
        """Carry it out, or count what it would do; exit code 1 if a canary halted it."""
        if dry_run or not yes:
            found = self._follow(request, dry_run=True)
            if dry_run:
                return self._tell(found, dry_run=True)
            self._ask(request.node_id, found)
        found = self._follow(request, dry_run=False)
        self._tell(found, dry_run=False)
        if found.halted:
            raise typer.Exit(1)
        return None

    def _follow(self, request: Any, *, dry_run: bool) -> Any:
        asked_for = type(request)()
        asked_for.CopyFrom(request)
        asked_for.dry_run = dry_run
        return asked(*self._where, _last_of(self._verb, asked_for))

    def _ask(self, node: str, found: Any) -> None:
        if not found.matched:
            return
        for line in _lines(found, self._verb, dry_run=True):
            note(line)
        typer.confirm(f"{self._verb} {counted(found.matched, 'document')} of {node}?", abort=True, err=True)

    def _tell(self, found: Any, *, dry_run: bool) -> None:
        from redrive.cli.pipeline.operate.shown import as_values

        if self._as_json:
            return emit({**as_values(found), "dry_run": dry_run})
        for line in _lines(found, self._verb, dry_run=dry_run):
            say(line)
        return None


def _last_of(verb: str, request: Any) -> Callable[[Any], Any]:
    async def work(desk: Any) -> Any:
        last = None
        async for progress in getattr(desk, verb)(request):
            last = progress
        return last

    return work


def _lines(found: Any, verb: str, *, dry_run: bool) -> Iterator[str]:
    for name, count in sorted(found.by_error_type.items(), key=lambda each: -each[1]):
        yield f"{count:>8}  {name or '-'}"
    done = (
        f"{verb}: {found.matched} of {found.read} would go"
        if dry_run
        else f"{verb}: {found.sent} of {found.matched} sent"
    )
    yield f"{done}, {found.refused} refused" if found.refused else done
    if found.halted:
        yield "halted; the rest was not sent"
    if found.message:
        yield found.message
