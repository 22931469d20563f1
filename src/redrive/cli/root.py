"""
The command line's root: the global options, the commands by name, and how errors leave.

Owns the exit codes: 0 done, 1 refused or failed (one sentence on standard error), 2 a command that cannot be read,
70 a worker that its watchdog ended because its event loop hung, 75 a worker that must be restarted. Imports no more
than the commands' signatures need, so that `redrive --help` is quick. Knows no verb.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from redrive.cli.act import acts, copy, edit, enqueue, plans, queues, spool, subscriptions
from redrive.cli.inbox import commands as inbox
from redrive.cli.kafka import commands as kafka
from redrive.cli.look import audit, explain, groups, letters, stats, top
from redrive.cli.output import note
from redrive.cli.pipeline import commands as pipeline
from redrive.cli.run import upkeep, worker
from redrive.cli.session import Globals
from redrive.errors import RedriveError, WorkerExhausted

if TYPE_CHECKING:
    from collections.abc import Callable


_RECYCLE = 75  # EX_TEMPFAIL, "try again": the supervisor restarts the worker


_ANYWHERE = ("--url", "--config")  # also after the command, where people write them


class Guarded(TyperGroup):
    """A group of commands whose errors end as one clear sentence and an exit code, never as a traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the global options wherever they stand."""
        return list(super().parse_args(ctx, _globals_first(args)))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; write what redrive raises to standard error."""
        try:
            return super().invoke(ctx)
        except RedriveError as error:
            for line in str(error).splitlines():
                note(f"redrive: {line}")
            raise typer.Exit(_RECYCLE if isinstance(error, WorkerExhausted) else 1) from error


def _globals_first(args: list[str]) -> list[str]:
    """Return *args* with the options that hold for all commands in front; what follows `--` stays where it is."""
    end = args.index("--") if "--" in args else len(args)
    front: list[str] = []
    rest: list[str] = []
    words = iter(args[:end])
    for word in words:
        name, _, value = word.partition("=")
        into = front if name in _ANYWHERE else rest
        into += [word, *([next(words, "")] if into is front and not value else [])]
    return [*front, *rest, *args[end:]]


app = typer.Typer(
    name="redrive",
    cls=Guarded,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Retry what can heal, dead-letter what cannot, lose nothing.",
    epilog="--url and --config may stand before or after the command. Exit codes: 0 done, 1 refused or failed, "
    "2 a command that cannot be read, 70 a worker whose event loop hung, 75 a worker to restart.",
)

COMMANDS: dict[str, Callable[..., Any]] = {
    "worker": worker.worker,
    "enqueue": enqueue.enqueue,
    "ls": letters.ls,
    "show": letters.show,
    "groups": groups.groups,
    "replay": acts.replay,
    "archive": acts.archive,
    "restore": acts.restore,
    "cancel": acts.cancel,
    "purge": acts.purge,
    "edit": edit.edit,
    "explain": explain.explain,
    "stats": stats.stats,
    "top": top.top,
    "audit": audit.audit,
    "copy": copy.copy,
    "migrate": upkeep.migrate,
    "check": upkeep.check,
    "demo": upkeep.demo,
}

for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
app.add_typer(plans.app, name="plan")
app.add_typer(queues.app, name="queues")
app.add_typer(subscriptions.app, name="subscriptions")
app.add_typer(kafka.app, name="kafka")
app.add_typer(inbox.app, name="inbox")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(spool.app, name="spool")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"redrive {version('redrive')}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    url: Annotated[str | None, typer.Option(help="The store of the letters, such as sqlite:///redrive.db.")] = None,
    config: Annotated[str | None, typer.Option(help="The settings file; redrive.toml if there is one.")] = None,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Retry what can heal, dead-letter what cannot, lose nothing."""
    del version
    ctx.obj = Globals(url, config)


def main() -> None:
    """Run the command line; the console script's entry point."""
    app()
